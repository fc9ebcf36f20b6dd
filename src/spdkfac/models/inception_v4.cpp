// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/models/inception_v4.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace spdkfac::models {

namespace nn = torch::nn;

namespace {

constexpr double kNormEps = 1e-3;  // timm's, after the TensorFlow original

struct Conv {
  std::int64_t out = 0;  // channels, before the width
  std::int64_t kernel_height = 1;
  std::int64_t kernel_width = 1;
  std::int64_t stride = 1;
  bool padded = false;  // so that stride 1 keeps the size
};

constexpr Conv same(std::int64_t out, std::int64_t kernel_height, std::int64_t kernel_width) {
  return {out, kernel_height, kernel_width, 1, true};
}
constexpr Conv valid3x3(std::int64_t out, std::int64_t stride) { return {out, 3, 3, stride}; }

class ConvNormRelu : public nn::Module {
 public:
  ConvNormRelu(std::int64_t in, const Conv& conv, double width)
      : out_(scaled(conv.out, width)),
        conv_(register_module("conv", make_conv(in, conv))),
        bn_(register_module("bn", nn::BatchNorm2d(nn::BatchNorm2dOptions(out_).eps(kNormEps)))) {}

  std::int64_t out() const { return out_; }
  torch::Tensor forward(const torch::Tensor& input) {
    torch::Tensor x = bn_(conv_(input));
    return torch::relu_(x);
  }

 private:
  nn::Conv2d make_conv(std::int64_t in, const Conv& conv) const {
    const std::int64_t height = conv.kernel_height, width = conv.kernel_width;
    const torch::ExpandingArray<2> padding =
        conv.padded ? torch::ExpandingArray<2>({height / 2, width / 2}) : 0;
    return conv2d(in, out_, {height, width}, conv.stride, padding);
  }

  std::int64_t out_;
  nn::Conv2d conv_;
  nn::BatchNorm2d bn_;
};

enum class Pool { kNone, kAverage, kMax };

// A pool, if any, then convolutions.
struct Branch {
  std::string name;
  Pool pool = Pool::kNone;
  std::vector<Conv> convs;
};

nn::AnyModule make_pool(Pool pool) {
  if (pool == Pool::kMax) {
    return nn::AnyModule(nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2)));
  }
  return nn::AnyModule(
      nn::AvgPool2d(nn::AvgPool2dOptions(3).stride(1).padding(1).count_include_pad(false)));
}

// Branches that read the same input; their outputs are joined along the channels.
class Concat : public nn::Module {
 public:
  Concat(std::int64_t in, const std::vector<Branch>& branches, double width) {
    for (const Branch& branch : branches) {
      std::vector<nn::AnyModule> steps;
      std::int64_t channels = in;
      if (branch.pool != Pool::kNone) steps.push_back(make_pool(branch.pool));
      for (const Conv& conv : branch.convs) {
        auto step = std::make_shared<ConvNormRelu>(channels, conv, width);
        channels = step->out();
        steps.emplace_back(std::move(step));
      }
      out_ += channels;
      add(branch.name, std::move(steps));
    }
  }

  std::int64_t out() const { return out_; }
  torch::Tensor forward(const torch::Tensor& input) {
    std::vector<torch::Tensor> outputs;
    for (nn::AnyModule& branch : branches_) outputs.push_back(branch.forward(input));
    return torch::cat(outputs, 1);
  }

 private:
  // A single step has the branch's name, several have numbers within it.
  void add(const std::string& name, std::vector<nn::AnyModule> steps) {
    if (steps.size() == 1) {
      branches_.push_back(std::move(steps.front()));
    } else {
      Chain chain;
      for (nn::AnyModule& step : steps) chain->push_back(std::move(step));
      branches_.emplace_back(std::move(chain));
    }
    register_module(name, branches_.back().ptr());
  }

  std::int64_t out_ = 0;
  std::vector<nn::AnyModule> branches_;
};

// The last kind of block: two branches fork once more, and timm numbers its modules flat.
class InceptionC : public nn::Module {
 public:
  InceptionC(std::int64_t in, double width) : width_(width) {
    branch0_ = add("branch0", in, {256});
    branch1_0_ = add("branch1_0", in, {384});
    branch1_1a_ = add("branch1_1a", branch1_0_->out(), same(256, 1, 3));
    branch1_1b_ = add("branch1_1b", branch1_0_->out(), same(256, 3, 1));
    branch2_0_ = add("branch2_0", in, {384});
    branch2_1_ = add("branch2_1", branch2_0_->out(), same(448, 3, 1));
    branch2_2_ = add("branch2_2", branch2_1_->out(), same(512, 1, 3));
    branch2_3a_ = add("branch2_3a", branch2_2_->out(), same(256, 1, 3));
    branch2_3b_ = add("branch2_3b", branch2_2_->out(), same(256, 3, 1));
    const auto last = std::make_shared<ConvNormRelu>(in, Conv{256}, width);
    branch3_->push_back(make_pool(Pool::kAverage));
    branch3_->push_back(last);
    register_module("branch3", branch3_);
    out_ = branch0_->out() + branch1_1a_->out() + branch1_1b_->out() + branch2_3a_->out() +
           branch2_3b_->out() + last->out();
  }

  std::int64_t out() const { return out_; }
  torch::Tensor forward(const torch::Tensor& input) {
    const torch::Tensor x0 = branch0_->forward(input);
    const torch::Tensor x1 = branch1_0_->forward(input);
    const torch::Tensor x1a = branch1_1a_->forward(x1);
    const torch::Tensor x1b = branch1_1b_->forward(x1);
    const torch::Tensor x2 = branch2_2_->forward(branch2_1_->forward(branch2_0_->forward(input)));
    const torch::Tensor x2a = branch2_3a_->forward(x2);
    const torch::Tensor x2b = branch2_3b_->forward(x2);
    return torch::cat({x0, x1a, x1b, x2a, x2b, branch3_->forward(input)}, 1);
  }

 private:
  using Step = std::shared_ptr<ConvNormRelu>;

  Step add(const std::string& name, std::int64_t in, const Conv& conv) {
    return register_module(name, std::make_shared<ConvNormRelu>(in, conv, width_));
  }

  double width_;
  std::int64_t out_ = 0;
  Step branch0_, branch1_0_, branch1_1a_, branch1_1b_;
  Step branch2_0_, branch2_1_, branch2_2_, branch2_3a_, branch2_3b_;
  Chain branch3_;
};

std::vector<Branch> mixed_3a() {
  return {{"maxpool", Pool::kMax, {}}, {"conv", Pool::kNone, {valid3x3(96, 2)}}};
}

std::vector<Branch> mixed_4a() {
  return {{"branch0", Pool::kNone, {{64}, valid3x3(96, 1)}},
          {"branch1", Pool::kNone, {{64}, same(64, 1, 7), same(64, 7, 1), valid3x3(96, 1)}}};
}

std::vector<Branch> mixed_5a() {
  return {{"conv", Pool::kNone, {valid3x3(192, 2)}}, {"maxpool", Pool::kMax, {}}};
}

std::vector<Branch> inception_a() {
  return {{"branch0", Pool::kNone, {{96}}},
          {"branch1", Pool::kNone, {{64}, same(96, 3, 3)}},
          {"branch2", Pool::kNone, {{64}, same(96, 3, 3), same(96, 3, 3)}},
          {"branch3", Pool::kAverage, {{96}}}};
}

std::vector<Branch> reduction_a() {
  return {{"branch0", Pool::kNone, {valid3x3(384, 2)}},
          {"branch1", Pool::kNone, {{192}, same(224, 3, 3), valid3x3(256, 2)}},
          {"branch2", Pool::kMax, {}}};
}

std::vector<Branch> inception_b() {
  return {{"branch0", Pool::kNone, {{384}}},
          {"branch1", Pool::kNone, {{192}, same(224, 1, 7), same(256, 7, 1)}},
          {"branch2",
           Pool::kNone,
           {{192}, same(192, 7, 1), same(224, 1, 7), same(224, 7, 1), same(256, 1, 7)}},
          {"branch3", Pool::kAverage, {{128}}}};
}

std::vector<Branch> reduction_b() {
  return {{"branch0", Pool::kNone, {{192}, valid3x3(192, 2)}},
          {"branch1", Pool::kNone, {{256}, same(256, 1, 7), same(320, 7, 1), valid3x3(320, 2)}},
          {"branch2", Pool::kMax, {}}};
}

}  // namespace

InceptionV4::InceptionV4(const ModelOptions& options) {
  std::int64_t channels = options.channels;
  const auto append = [&](const auto& module) {
    features_->push_back(module);
    channels = module->out();
  };
  const auto concat = [&](const std::vector<Branch>& branches, int times = 1) {
    for (int t = 0; t < times; ++t) {
      append(std::make_shared<Concat>(channels, branches, options.width));
    }
  };
  for (const Conv& conv : {valid3x3(32, 2), valid3x3(32, 1), same(64, 3, 3)}) {
    append(std::make_shared<ConvNormRelu>(channels, conv, options.width));
  }
  concat(mixed_3a());
  concat(mixed_4a());
  concat(mixed_5a());
  concat(inception_a(), 4);
  concat(reduction_a());
  concat(inception_b(), 7);
  concat(reduction_b());
  for (int t = 0; t < 3; ++t) append(std::make_shared<InceptionC>(channels, options.width));
  register_module("features", features_);
  last_linear_ = register_module("last_linear", nn::Linear(channels, options.classes));
}

torch::Tensor InceptionV4::forward(torch::Tensor images) {
  return last_linear_(global_average(features_->forward(images)));
}

}  // namespace spdkfac::models
