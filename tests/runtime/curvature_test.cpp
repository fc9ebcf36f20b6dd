// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/curvature.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "spdkfac/comm/threads.h"
#include "spdkfac/runtime/preconditioner.h"
#include "support/config_error.h"

namespace spdkfac {
namespace {

namespace nn = torch::nn;
using Data = std::vector<std::pair<at::Tensor, at::Tensor>>;

struct CurvedNet : nn::Module {
  CurvedNet() {
    torch::manual_seed(5);
    conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(2, 3, 2).stride(2)));
    out = register_module("out", nn::Linear(12, 3));
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) {
    return out->forward(at::tanh(conv->forward(x)).flatten(1));
  }
  nn::Conv2d conv{nullptr};
  nn::Linear out{nullptr};
};

Data images_in_batches(const std::vector<std::int64_t>& sizes) {
  torch::manual_seed(9);
  std::int64_t total = 0;
  for (const std::int64_t size : sizes) total += size;
  const at::Tensor inputs = at::randn({total, 2, 4, 4}, at::kDouble);
  const at::Tensor labels = at::randint(3, {total}, at::kLong);
  Data data;
  std::int64_t first = 0;
  for (const std::int64_t size : sizes) {
    data.emplace_back(inputs.narrow(0, first, size), labels.narrow(0, first, size));
    first += size;
  }
  return data;
}

at::Tensor summed_loss(const at::Tensor& outputs, const at::Tensor& labels) {
  return at::cross_entropy_loss(outputs, labels, {}, at::Reduction::Sum);
}

void go_through(Curvature& curvature, CurvedNet& model, const Data& data,
                Curvature::Purpose purpose = Curvature::Purpose::kFactors) {
  for (const auto& [inputs, labels] : data) {
    curvature.begin(inputs.size(0), purpose);
    const at::Tensor loss = summed_loss(model.forward(inputs), labels);
    curvature.backward(loss, at::ones_like(loss));
    if (purpose == Curvature::Purpose::kFactors) curvature.end();
  }
}

// Of the Linear layer, one example at a time.
std::pair<at::Tensor, at::Tensor> expected_of_out(CurvedNet& model, const Data& data) {
  at::Tensor a = at::zeros({13, 13}, at::kDouble);
  at::Tensor g = at::zeros({3, 3}, at::kDouble);
  double examples = 0;
  for (const auto& [inputs, labels] : data) {
    for (std::int64_t i = 0; i < inputs.size(0); ++i, ++examples) {
      const at::Tensor features =
          at::tanh(model.conv->forward(inputs.narrow(0, i, 1))).flatten(1).detach();
      const at::Tensor row = at::cat({features, at::ones({1, 1}, at::kDouble)}, 1);
      at::Tensor gradient = at::softmax(model.out->forward(features), 1).detach();
      gradient[0][labels[i].item<std::int64_t>()] -= 1;
      a += row.t().mm(row);
      g += gradient.t().mm(gradient);
    }
  }
  return {a / examples, g / examples};
}

TEST(Curvature, AddsUpBatchesOfAnySizeInEvaluationMode) {
  CurvedNet model;
  model.eval();
  const Data data = images_in_batches({2, 5, 1});
  Curvature curvature(model);
  go_through(curvature, model, data);
  const auto factors = curvature.factors(*make_local_communicator());
  const auto [a, g] = expected_of_out(model, data);
  EXPECT_TRUE(at::allclose(factors[1].a[0], a, 1e-12, 1e-14));
  EXPECT_TRUE(at::allclose(factors[1].g[0], g, 1e-12, 1e-14));
  EXPECT_EQ(factors[0].examples, 8);
  EXPECT_EQ(factors[0].rows, 8 * 4);
  for (const at::Tensor& parameter : model.parameters()) EXPECT_FALSE(parameter.grad().defined());
}

TEST(Curvature, CountsInputsOnceForSeveralVectors) {
  CurvedNet model;
  const Data data = images_in_batches({4});
  Curvature curvature(model);
  curvature.begin(4);
  const at::Tensor outputs = model.forward(data[0].first);
  for (std::int64_t column = 0; column < 3; ++column) {
    const at::Tensor vector = at::zeros_like(outputs);
    vector.select(1, column).fill_(2);
    curvature.backward(outputs, vector, /*again=*/column < 2);
  }
  curvature.end();
  const auto factors = curvature.factors(*make_local_communicator());
  EXPECT_TRUE(at::allclose(factors[1].a[0], expected_of_out(model, data).first, 1e-12, 1e-14));
  EXPECT_TRUE(at::allclose(factors[1].g[0], 4 * at::eye(3, at::kDouble)));
}

TEST(Curvature, GivesTheGradientsOfSingleExamples) {
  CurvedNet model;
  const Data data = images_in_batches({3});
  Curvature curvature(model);
  go_through(curvature, model, data, Curvature::Purpose::kExampleGradients);
  const std::vector<at::Tensor> found = curvature.example_gradients();
  curvature.end();  // what follows is not to count
  for (std::int64_t i = 0; i < 3; ++i) {
    model.zero_grad();
    summed_loss(model.forward(data[0].first.narrow(0, i, 1)), data[0].second.narrow(0, i, 1))
        .backward();
    const at::Tensor expected =
        at::cat({model.conv->weight.grad().flatten(1), model.conv->bias.grad().unsqueeze(1)}, 1);
    EXPECT_TRUE(at::allclose(found[0][i][0], expected, 1e-12, 1e-14));
  }
}

TEST(Curvature, RanksHaveTheFactorsOfAllData) {
  const Data data = images_in_batches({3, 2, 4});
  CurvedNet whole;
  const auto [a, g] = expected_of_out(whole, data);
  std::vector<std::shared_ptr<CurvedNet>> models;
  for (int rank = 0; rank < 2; ++rank) models.push_back(std::make_shared<CurvedNet>());
  std::vector<std::vector<Curvature::LayerFactors>> found(2);
  at::set_num_threads(1);
  run_ranks(2, [&](const std::shared_ptr<Communicator>& communicator) {
    const auto rank = static_cast<std::size_t>(communicator->rank());
    Curvature curvature(*models[rank]);
    const Data own = rank == 0 ? Data{data[0]} : Data{data[1], data[2]};
    go_through(curvature, *models[rank], own);
    found[rank] = curvature.factors(*communicator);
  });
  for (const auto& factors : found) {
    EXPECT_EQ(factors[1].examples, 9);
    EXPECT_TRUE(at::allclose(factors[1].a[0], a, 1e-12, 1e-14));
    EXPECT_TRUE(at::allclose(factors[1].g[0], g, 1e-12, 1e-14));
    EXPECT_TRUE(at::equal(factors[0].a, found[0][0].a));
  }
}

TEST(Curvature, ReducedFactorsHaveARowForEachExample) {
  CurvedNet model;
  const Data data = images_in_batches({5});
  KfacOptions options;
  options.sharing = Sharing::kReduce;
  Curvature curvature(model, options);
  go_through(curvature, model, data);
  const auto factors = curvature.factors(*make_local_communicator());
  // Kernel and stride are 2: the patches are the four corners, each a mean over the rest.
  at::Tensor expected = at::zeros({9, 9}, at::kDouble);
  for (std::int64_t i = 0; i < 5; ++i) {
    const at::Tensor places =
        data[0].first[i].view({2, 2, 2, 2, 2}).mean(std::vector<std::int64_t>{1, 3});
    const at::Tensor row = at::cat({places.reshape({8}), at::ones({1}, at::kDouble)});
    expected += at::outer(row, row) / 5;
  }
  EXPECT_TRUE(at::allclose(factors[0].a[0], expected, 1e-12, 1e-14));
}

TEST(Curvature, NamesLayersThatWereNotCalled) {
  CurvedNet model;
  Curvature curvature(model);
  support::expect_config_error([&] { curvature.factors(*make_local_communicator()); },
                               "layer conv was not called");
}

TEST(Curvature, TrainingHasNoReducedFactors) {
  CurvedNet model;
  KfacOptions options;
  options.sharing = Sharing::kReduce;
  support::expect_config_error([&] { Preconditioner kfac(model, options); }, "sharing=reduce");
}

}  // namespace
}  // namespace spdkfac
