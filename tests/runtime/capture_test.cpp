// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/capture.h"

#include <stdexcept>
#include <thread>

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "support/device.h"

namespace spdkfac {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using support::test_device;

struct SeenCall {
  std::size_t layer = 0;
  kfac::LayerUse use;
  at::Tensor input;
  at::Tensor output_gradient;
};

class RecordingSink : public runtime::CaptureSink,
                      public std::enable_shared_from_this<RecordingSink> {
 public:
  bool wants(std::size_t) override { return true; }
  std::function<void(const at::Tensor&)> on_call(std::size_t layer, const kfac::LayerUse& use,
                                                 const at::Tensor& input,
                                                 const at::Tensor&) override {
    if (fail) throw std::runtime_error("refused by the sink");
    calls.push_back({layer, use, input.detach().clone(), {}});
    const std::size_t call = calls.size() - 1;
    return [weak = weak_from_this(), call](const at::Tensor& gradient) {
      const auto self = weak.lock();
      if (!self) return;
      ++self->gradients;
      self->calls[call].output_gradient = gradient.detach().clone();
    };
  }

  void on_other_call(const kfac::LayerUse& use, const at::Tensor&, const at::Tensor&) override {
    others.push_back(use);
  }
  void on_loss(std::int64_t batch) override { losses.push_back(batch); }

  std::vector<SeenCall> calls;
  std::vector<kfac::LayerUse> others;
  std::vector<std::int64_t> losses;
  int gradients = 0;
  bool fail = false;
};

at::TensorOptions doubles() { return support::test_options(at::kDouble); }

// An unmodified module of someone else, with an in-place activation right behind the convolution.
struct SmallNetImpl : nn::Module {
  SmallNetImpl() {
    conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(2, 3, 3).stride(2).padding(1)));
    fc = register_module("fc", nn::Linear(3 * 3 * 3, 4));
    to(doubles().device(), at::kDouble);
  }
  at::Tensor forward(at::Tensor images) {
    images = conv(images).relu_();
    return fc(images.flatten(1));
  }
  nn::Conv2d conv = nullptr;
  nn::Linear fc = nullptr;
};
TORCH_MODULE(SmallNet);

struct Watched {
  explicit Watched(nn::Module& model)
      : layers(tracked_layers(model)),
        sink(std::make_shared<RecordingSink>()),
        capture(layers, sink) {}
  std::vector<TrackedLayer> layers;
  std::shared_ptr<RecordingSink> sink;
  runtime::Capture capture;
};

void expect_equal(const at::Tensor& actual, const at::Tensor& expected) {
  ASSERT_TRUE(actual.defined());
  ASSERT_EQ(actual.sizes(), expected.sizes());
  EXPECT_TRUE(at::allclose(actual, expected, 1e-12, 1e-14)) << actual << expected;
}

TEST(Capture, SeesInputsAndOutputGradientsOfUnmodifiedModules) {
  torch::manual_seed(1);
  SmallNet model;
  Watched watched(*model);
  const at::Tensor images = torch::randn({5, 2, 6, 6}, doubles());
  model(images).square().sum().backward();

  // The same pass on untracked copies of the weights, every intermediate value kept.
  const at::Tensor pre = torch::conv2d(images, model->conv->weight.detach().clone(),
                                       model->conv->bias.detach().clone(), 2, 1)
                             .requires_grad_();
  const at::Tensor features = pre.relu().flatten(1);
  const at::Tensor logits = torch::addmm(model->fc->bias.detach().clone(), features,
                                         model->fc->weight.detach().clone().t());
  logits.retain_grad();
  logits.square().sum().backward();

  const auto& calls = watched.sink->calls;
  ASSERT_EQ(calls.size(), 2);
  EXPECT_EQ(calls[0].layer, 0);
  EXPECT_EQ(calls[1].layer, 1);
  EXPECT_EQ(calls[0].use.conv, (kfac::ConvGeometry{{3, 3}, {2, 2}, {1, 1}, {1, 1}, 1}));
  EXPECT_EQ(calls[0].use.examples, 5);
  EXPECT_EQ(calls[0].use.positions, 9);
  EXPECT_FALSE(calls[1].use.conv);
  expect_equal(calls[0].input, images);
  expect_equal(calls[0].output_gradient, pre.grad());
  expect_equal(calls[1].input, features.detach());
  expect_equal(calls[1].output_gradient, logits.grad());
}

TEST(Capture, SeesFunctionalCallsThatUseATrackedWeight) {
  torch::manual_seed(2);
  nn::Linear layer(nn::LinearOptions(3, 2));
  layer->to(doubles().device(), at::kDouble);
  Watched watched(*layer);
  const at::Tensor x = torch::randn({4, 3}, doubles());
  const at::Tensor& w = layer->weight;
  const at::Tensor& b = layer->bias;
  const std::vector<std::function<at::Tensor()>> forms = {
      [&] { return torch::linear(x, w, b); },
      [&] { return torch::linear(x, w); },
      [&] { return F::linear(x, w, b); },
      [&] { return torch::mm(x, w.t()); },
      [&] { return torch::matmul(x, w.t()) + b; },
      [&] { return torch::addmm(b, x, w.t()); },
      [&] { return torch::matmul(x, w.mT()); },
      [&] { return torch::matmul(x, w.transpose(0, 1)); },
  };
  for (std::size_t form = 0; form < forms.size(); ++form) {
    const at::Tensor y = forms[form]();
    (y * y).sum().backward();
    ASSERT_EQ(watched.sink->calls.size(), form + 1) << "form " << form;
    expect_equal(watched.sink->calls[form].input, x);
    expect_equal(watched.sink->calls[form].output_gradient, 2 * y.detach());
  }
  // Not the layer: the weight itself as a right factor, as a left one, and a multiple.
  nn::Linear square(nn::LinearOptions(3, 3).bias(false));
  square->to(doubles().device(), at::kDouble);
  Watched watched_square(*square);
  torch::mm(x, square->weight);
  torch::mm(square->weight, x.t());
  torch::addmm(torch::zeros({4, 3}, doubles()), x, square->weight.t(), 1, 2);
  EXPECT_TRUE(watched_square.sink->calls.empty());
}

TEST(Capture, SeesLinearOnAnyNumberOfLeadingDimensions) {
  for (const bool bias : {true, false}) {
    nn::Linear layer(nn::LinearOptions(3, 2).bias(bias));
    layer->to(doubles().device(), at::kDouble);
    Watched watched(*layer);
    for (const auto& shape :
         std::vector<std::vector<std::int64_t>>{{4, 3}, {4, 5, 3}, {4, 5, 6, 3}}) {
      const at::Tensor x = torch::randn(shape, doubles());
      layer(x).sum().backward();
      const SeenCall& call = watched.sink->calls.back();
      expect_equal(call.input, x);
      EXPECT_EQ(call.use.examples, 4);
      EXPECT_EQ(call.use.positions, x.numel() / 12);
      EXPECT_TRUE(call.output_gradient.eq(1).all().item<bool>());
    }
    EXPECT_EQ(watched.sink->calls.size(), 3);
  }
}

TEST(Capture, TakesGeometryFromTheOperatorNotFromTheModule) {
  const auto options = nn::Conv2dOptions(4, 6, {3, 2}).dilation({2, 1}).stride({1, 2}).groups(2);
  nn::Conv2d plain(options);
  plain->to(doubles().device(), at::kDouble);
  Watched watched(*plain);
  const at::Tensor x = torch::randn({2, 4, 8, 9}, doubles());
  plain(x);
  EXPECT_EQ(watched.sink->calls.at(0).use.conv,
            (kfac::ConvGeometry{{3, 2}, {1, 2}, {0, 0}, {2, 1}, 2}));

  // Reflection pads beforehand: the operator sees the padded input and no padding.
  nn::Conv2d reflect(nn::Conv2dOptions(4, 2, 3).padding(1).padding_mode(torch::kReflect));
  reflect->to(doubles().device(), at::kDouble);
  Watched watched_reflect(*reflect);
  reflect(x);
  EXPECT_EQ(watched_reflect.sink->calls.at(0).use.conv,
            (kfac::ConvGeometry{{3, 3}, {1, 1}, {0, 0}, {1, 1}, 1}));
  expect_equal(watched_reflect.sink->calls[0].input,
               F::pad(x, F::PadFuncOptions({1, 1, 1, 1}).mode(torch::kReflect)));
}

TEST(Capture, SamePaddingOfAnEvenKernelShowsThePaddedInput) {
  nn::Conv2d layer(nn::Conv2dOptions(1, 1, {2, 3}).padding(torch::kSame));
  layer->to(doubles().device(), at::kDouble);
  Watched watched(*layer);
  const at::Tensor x = torch::randn({1, 1, 4, 4}, doubles());
  layer(x);
  // Two rows: none before, one after. Three columns: one on each side.
  expect_equal(watched.sink->calls.at(0).input, F::pad(x, F::PadFuncOptions({1, 1, 0, 1})));
  EXPECT_EQ(watched.sink->calls[0].use.positions, 16);

  nn::Conv2d odd(nn::Conv2dOptions(1, 1, 3).padding(torch::kSame).dilation(2));
  odd->to(doubles().device(), at::kDouble);
  Watched watched_odd(*odd);
  odd(x);
  EXPECT_EQ(watched_odd.sink->calls.at(0).use.conv,
            (kfac::ConvGeometry{{3, 3}, {1, 1}, {2, 2}, {2, 2}, 1}));
}

TEST(Capture, AModuleUsedTwiceGivesEachCallItsOwnGradient) {
  nn::Linear layer(nn::LinearOptions(2, 2).bias(false));
  layer->to(doubles().device(), at::kDouble);
  Watched watched(*layer);
  const at::Tensor x = torch::randn({3, 2}, doubles());
  const at::Tensor first = layer(x);
  const at::Tensor second = layer(first);
  second.sum().backward();
  ASSERT_EQ(watched.sink->calls.size(), 2);
  const at::Tensor ones = torch::ones({3, 2}, doubles());
  expect_equal(watched.sink->calls[1].input, first.detach());
  expect_equal(watched.sink->calls[1].output_gradient, ones);
  expect_equal(watched.sink->calls[0].output_gradient, torch::mm(ones, layer->weight.detach()));
}

TEST(Capture, IgnoresEvaluationModeNoGradAndFrozenWeights) {
  SmallNet model;
  Watched watched(*model);
  const at::Tensor images = torch::randn({2, 2, 6, 6}, doubles());
  model->eval();
  model(images);
  model->train();
  {
    const torch::NoGradGuard no_grad;
    model(images);
  }
  EXPECT_TRUE(watched.sink->calls.empty());
  model->conv->weight.requires_grad_(false);
  model(images);
  ASSERT_EQ(watched.sink->calls.size(), 1);
  EXPECT_EQ(watched.sink->calls[0].layer, 1);
}

TEST(Capture, SeveralCapturesSeeTheSameCallsUntilEachEnds) {
  SmallNet model;
  const at::Tensor images = torch::randn({2, 2, 6, 6}, doubles());
  auto first = std::make_unique<Watched>(*model);
  Watched second(*model);
  SmallNet other;
  const Watched third(*other);
  model(images).sum().backward();
  EXPECT_EQ(first->sink->gradients, 2);
  EXPECT_EQ(second.sink->gradients, 2);
  const auto first_sink = first->sink;
  first.reset();
  model(images).sum().backward();
  EXPECT_EQ(first_sink->gradients, 2);
  EXPECT_EQ(second.sink->gradients, 4);
  EXPECT_EQ(third.sink->gradients, 0);
}

TEST(Capture, ABackwardAfterTheEndIsHarmless) {
  SmallNet model;
  const at::Tensor images = torch::randn({2, 2, 6, 6}, doubles());
  auto watched = std::make_unique<Watched>(*model);
  const at::Tensor loss = model(images).sum();
  watched.reset();
  loss.backward();
  EXPECT_TRUE(model->fc->weight.grad().defined());
}

TEST(Capture, ShowsTheGradientOfEachPassThatAccumulatesIntoTheWeight) {
  nn::Linear layer(3, 2);
  layer->to(doubles().device(), at::kDouble);
  Watched watched(*layer);
  const at::Tensor x = torch::randn({4, 3}, doubles()).requires_grad_();
  const at::Tensor loss = layer(x).square().sum();
  torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true);
  torch::autograd::grad({loss}, {layer->weight}, {}, /*retain_graph=*/true);
  torch::autograd::backward({loss}, {}, /*retain_graph=*/true, false, {layer->bias});
  EXPECT_EQ(watched.sink->gradients, 0);
  torch::autograd::backward({loss}, {}, /*retain_graph=*/true, false, {layer->weight});
  EXPECT_EQ(watched.sink->gradients, 1);
  loss.backward();
  EXPECT_EQ(watched.sink->gradients, 2);
}

TEST(Capture, ShowsTheBatchOfLossesWithGradients) {
  SmallNet model;
  const Watched watched(*model);
  const at::Tensor scores = torch::randn({5, 4}, doubles()).requires_grad_();
  const at::Tensor labels = torch::zeros({5}, support::test_options(at::kLong));
  const at::Tensor targets = torch::rand({5, 4}, doubles());
  torch::cross_entropy_loss(scores, labels);
  torch::nll_loss(scores, labels);
  torch::binary_cross_entropy_with_logits(scores, targets);
  torch::binary_cross_entropy(torch::sigmoid(scores), targets);
  torch::mse_loss(scores, targets);
  EXPECT_THAT(watched.sink->losses, testing::ElementsAre(5, 5, 5, 5, 5));
  torch::cross_entropy_loss(scores[0], labels[0]);
  EXPECT_EQ(watched.sink->losses.back(), 1);
  torch::cross_entropy_loss(scores.detach(), labels);
  EXPECT_EQ(watched.sink->losses.size(), 6);
}

TEST(Capture, ShowsCallsOfOtherParametersApart) {
  nn::Linear layer(3, 2);
  layer->to(doubles().device(), at::kDouble);
  const std::vector<TrackedLayer> layers = tracked_layers(*layer);
  const auto sink = std::make_shared<RecordingSink>();
  const at::Tensor matrix = torch::randn({3, 3}, doubles()).requires_grad_();
  const at::Tensor kernel = torch::randn({4, 2, 3}, doubles()).requires_grad_();
  const runtime::Capture capture(layers, sink, {matrix, kernel});
  torch::linear(torch::randn({5, 6, 3}, doubles()), matrix);
  torch::conv1d(torch::randn({7, 2, 9}, doubles()), kernel);
  EXPECT_TRUE(sink->calls.empty());
  ASSERT_EQ(sink->others.size(), 2);
  EXPECT_EQ(sink->others[0].examples, 5);
  EXPECT_EQ(sink->others[0].rows(), 30);
  EXPECT_FALSE(sink->others[0].conv);
  EXPECT_EQ(sink->others[1].examples, 7);
  EXPECT_EQ(sink->others[1].rows(), 49);  // 9 − 3 + 1 positions
  EXPECT_TRUE(sink->others[1].conv);
}

TEST(Capture, ADoubleBackwardCountsOnce) {
  SmallNet model;
  Watched watched(*model);
  const at::Tensor images = torch::randn({2, 2, 6, 6}, doubles()).requires_grad_();
  const at::Tensor loss = model(images).square().sum();
  const auto gradients = torch::autograd::grad({loss}, {images}, {}, true, /*create_graph=*/true);
  gradients[0].square().sum().backward();
  EXPECT_EQ(watched.sink->gradients, 2);
}

TEST(Capture, ExceptionsOfTheSinkReachTheCallerOfForward) {
  SmallNet model;
  Watched watched(*model);
  watched.sink->fail = true;
  EXPECT_THAT(
      [&] {
        model(torch::randn({2, 2, 6, 6}, doubles()));
      },
      testing::ThrowsMessage<std::runtime_error>(testing::HasSubstr("refused by the sink")));
}

TEST(Capture, AnOperatorThatThrowsIsNotRecorded) {
  SmallNet model;
  Watched watched(*model);
  EXPECT_THROW(model->conv(torch::randn({2, 7, 6, 6}, doubles())), c10::Error);
  EXPECT_TRUE(watched.sink->calls.empty());
}

TEST(Capture, BelongsToTheThreadThatMadeIt) {
  SmallNet model;
  Watched watched(*model);
  std::thread([&] { model(torch::randn({2, 2, 6, 6}, doubles())); }).join();
  EXPECT_TRUE(watched.sink->calls.empty());
}

TEST(Capture, UnderAutocastTheInputIsFullPrecisionAndTheGradientIsNot) {
  nn::Linear layer(3, 2);
  layer->to(test_device());
  Watched watched(*layer);
  const at::Tensor x = torch::randn({4, 3}, at::TensorOptions().device(test_device()));
  at::autocast::set_autocast_enabled(test_device().type(), true);
  at::autocast::set_autocast_dtype(test_device().type(), at::kBFloat16);
  const at::Tensor y = layer(x);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(test_device().type(), false);
  y.sum().backward();
  ASSERT_EQ(watched.sink->calls.size(), 1);
  EXPECT_EQ(watched.sink->calls[0].input.scalar_type(), at::kFloat);
  EXPECT_EQ(watched.sink->calls[0].output_gradient.scalar_type(), at::kBFloat16);
}

TEST(Capture, KeepsTrackOfAModelThatMoves) {
  nn::Linear layer(3, 2);
  Watched watched(*layer);
  layer->to(at::kDouble);
  layer(torch::randn({4, 3}, at::kDouble)).sum().backward();
  EXPECT_EQ(watched.sink->gradients, 1);
}

}  // namespace
}  // namespace spdkfac
