// SPDX-License-Identifier: Apache-2.0
// Every kind of layer that is covered: whole steps against derivatives in double precision.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "runtime/thread_ranks.h"
#include "spdkfac/comm/threads.h"
#include "spdkfac/plan/planner.h"
#include "spdkfac/runtime/kinds/kind.h"
#include "spdkfac/runtime/preconditioner.h"
#include "support/device.h"
#include "support/jacobians.h"
#include "support/models.h"

namespace spdkfac {
namespace {

namespace nn = torch::nn;
using support::test_device;
using support::test_options;

constexpr double kDamping = 0.3;

KfacOptions plain_options() {
  return {.damping = kDamping, .damping_mode = Damping::kPlain, .kl_clip = 0};
}

// A module with one layer, and how its output is computed.
struct KindCase {
  std::string name;
  std::function<nn::AnyModule()> make;
  std::vector<std::int64_t> input;
};
void PrintTo(const KindCase& c, std::ostream* out) { *out << c.name; }

std::vector<KindCase> kind_cases() {
  return {
      {"Linear", [] { return nn::AnyModule(nn::Linear(3, 4)); }, {5, 3}},
      {"Conv1d",
       [] { return nn::AnyModule(nn::Conv1d(nn::Conv1dOptions(2, 4, 3).stride(2).padding(1))); },
       {4, 2, 7}},
      {"Conv1dSame",
       [] {
         return nn::AnyModule(
             nn::Conv1d(nn::Conv1dOptions(2, 4, 4).padding(torch::kSame).bias(false)));
       },
       {4, 2, 7}},
      {"Conv1dReflected",
       [] {
         return nn::AnyModule(
             nn::Conv1d(nn::Conv1dOptions(2, 4, 3).padding(2).padding_mode(torch::kReflect)));
       },
       {4, 2, 7}},
      {"Conv1dGroups",
       [] { return nn::AnyModule(nn::Conv1d(nn::Conv1dOptions(4, 6, 3).groups(2))); },
       {4, 4, 5}},
      {"Conv3d",
       [] {
         return nn::AnyModule(nn::Conv3d(nn::Conv3dOptions(2, 3, 2).stride({1, 2, 1})));
       },
       {3, 2, 3, 4, 3}},
      {"Conv3dSame",
       [] {
         return nn::AnyModule(nn::Conv3d(nn::Conv3dOptions(2, 3, {2, 3, 1}).padding(torch::kSame)));
       },
       {3, 2, 3, 4, 3}},
      {"ConvTranspose1d",
       [] {
         return nn::AnyModule(nn::ConvTranspose1d(
             nn::ConvTranspose1dOptions(3, 2, 3).stride(2).padding(1).output_padding(1)));
       },
       {4, 3, 4}},
      {"ConvTranspose2d",
       [] {
         return nn::AnyModule(nn::ConvTranspose2d(
             nn::ConvTranspose2dOptions(3, 2, {2, 3}).stride(2).dilation({1, 2}).bias(false)));
       },
       {3, 3, 3, 2}},
      {"ConvTranspose2dGroups",
       [] {
         return nn::AnyModule(
             nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 6, 2).stride(2).groups(2)));
       },
       {3, 4, 2, 2}},
      {"ConvTranspose3d",
       [] {
         return nn::AnyModule(nn::ConvTranspose3d(nn::ConvTranspose3dOptions(2, 3, 2).stride(2)));
       },
       {3, 2, 2, 1, 2}},
  };
}

class Kinds : public testing::TestWithParam<KindCase> {
 protected:
  void SetUp() override {
    torch::manual_seed(11);
    module = GetParam().make();
    module.ptr()->to(test_device(), at::kDouble);
    input = torch::randn(GetParam().input, test_options(at::kDouble));
  }
  TrackedLayer layer() const { return tracked_layers(*module.ptr()).at(0); }
  support::LayerUnderTest tested(const TrackedLayer& one) const {
    return {one.weight, one.bias, runtime::kind_of(one.kind).layout, one.groups};
  }
  at::Tensor output() { return module.forward<at::Tensor>(input); }
  // A loss that is a mean over the examples, curved so that gradients of outputs differ.
  static at::Tensor loss_of(const at::Tensor& output) {
    return (output.square() + output.tanh()).sum() / static_cast<double>(output.size(0));
  }
  // What the step must leave as gradients, [groups, out, d_a].
  at::Tensor expected(const TrackedLayer& one, bool weight_trained) {
    const at::Tensor result = output();
    result.retain_grad();
    module.ptr()->zero_grad();
    loss_of(result).backward();
    const at::Tensor fresh = output();
    at::Tensor a = support::input_factor_of(tested(one), fresh);
    const at::Tensor g = support::gradient_factor_of(result.grad(), one.groups);
    std::vector<at::Tensor> columns;
    if (weight_trained) {
      columns.push_back(support::matrix_of(one.weight.grad(), tested(one).layout, one.groups));
    } else {
      a = a.narrow(1, a.size(1) - 1, 1).narrow(2, a.size(2) - 1, 1);
    }
    if (one.bias.defined()) columns.push_back(one.bias.grad().view({one.groups, -1, 1}));
    const at::Tensor gradient = at::cat(columns, 2);
    std::vector<at::Tensor> groups;
    for (std::int64_t group = 0; group < one.groups; ++group) {
      groups.push_back(support::solved(a[group], g[group], gradient[group], kDamping));
    }
    module.ptr()->zero_grad();
    return at::stack(groups);
  }
  void expect_step(const TrackedLayer& one, const at::Tensor& wanted, bool weight_trained) {
    Preconditioner kfac(*module.ptr(), plain_options());
    loss_of(output()).backward();
    kfac.step(0.1);
    std::vector<at::Tensor> columns;
    if (weight_trained) {
      columns.push_back(support::matrix_of(one.weight.grad(), tested(one).layout, one.groups));
    }
    if (one.bias.defined()) columns.push_back(one.bias.grad().view({one.groups, -1, 1}));
    const at::Tensor actual = at::cat(columns, 2);
    ASSERT_EQ(actual.sizes(), wanted.sizes());
    EXPECT_TRUE(at::allclose(actual, wanted, 1e-9, 1e-10))
        << (actual - wanted).abs().max().item<double>();
  }

  nn::AnyModule module;
  at::Tensor input;
};

TEST_P(Kinds, StepAsTheirDerivativesSay) {
  const TrackedLayer one = layer();
  const at::Tensor wanted = expected(one, true);
  expect_step(one, wanted, true);
}

TEST_P(Kinds, StepOfABiasAloneHasNoInputs) {
  const TrackedLayer one = layer();
  if (!one.bias.defined()) GTEST_SKIP() << "no bias";
  const at::Tensor wanted = expected(one, false);
  one.weight.set_requires_grad(false);
  expect_step(one, wanted, false);
}

TEST_P(Kinds, StepOfAWeightAloneHasNoColumnForTheBias) {
  TrackedLayer one = layer();
  one.bias = at::Tensor();
  const at::Tensor wanted = expected(one, true);
  if (layer().bias.defined()) layer().bias.set_requires_grad(false);
  expect_step(one, wanted, true);
}

INSTANTIATE_TEST_SUITE_P(OfModules, Kinds, testing::ValuesIn(kind_cases()),
                         [](const auto& tested) { return tested.param.name; });

// --- a weight [in, out] ---

TEST(LinearInOut, StepsLikeALinearLayerWithTheTransposedWeight) {
  torch::manual_seed(2);
  const at::Tensor x = torch::randn({5, 2, 3}, test_options(at::kDouble));
  nn::Linear linear(3, 4);
  linear->to(test_device(), at::kDouble);
  const at::Tensor weight = linear->weight.detach().t().clone().requires_grad_();
  const at::Tensor bias = linear->bias.detach().clone().requires_grad_();
  KfacOptions options = plain_options();
  options.examples = number_of_examples(5);
  Preconditioner expected(*linear, options);
  Preconditioner kfac(
      {{.name = "one", .weight = weight, .bias = bias, .kind = LayerKind::kLinearInOut}}, {},
      options);
  linear(x).square().sum().div(5).backward();
  expected.step(0.1);
  // As transformers' Conv1D: a product of rows, then the shape of the input.
  torch::addmm(bias, x.view({-1, 3}), weight).view({5, 2, 4}).square().sum().div(5).backward();
  kfac.step(0.1);
  EXPECT_TRUE(at::allclose(weight.grad(), linear->weight.grad().t(), 1e-10, 1e-12));
  EXPECT_TRUE(at::allclose(bias.grad(), linear->bias.grad(), 1e-10, 1e-12));
}

// --- MultiheadAttention ---

struct AttentionCase {
  std::string name;
  bool separate = false;  // keys and values of other sizes have weights of their own
  int sources = 1;        // different inputs among queries, keys and values
};

// The same arithmetic with three Linear modules, so that K-FAC of Linear layers is the reference.
struct PlainAttentionImpl : nn::Module {
  explicit PlainAttentionImpl(const nn::MultiheadAttention& from) {
    const bool fused = from->in_proj_weight.defined();
    const std::array<at::Tensor, 3> own = {from->q_proj_weight, from->k_proj_weight,
                                           from->v_proj_weight};
    const std::array<const char*, 3> names = {"q_proj", "k_proj", "v_proj"};
    const torch::NoGradGuard no_grad;
    for (std::size_t part = 0; part < 3; ++part) {
      const auto first = static_cast<std::int64_t>(part) * kSize;
      const at::Tensor weight = fused ? from->in_proj_weight.narrow(0, first, kSize) : own[part];
      nn::Linear linear(weight.size(1), kSize);
      linear->to(test_device(), at::kDouble);
      linear->weight.copy_(weight);
      linear->bias.copy_(from->in_proj_bias.narrow(0, first, kSize));
      projections.push_back(register_module(names[part], linear));
    }
    out = register_module("out_proj", nn::Linear(kSize, kSize));
    out->to(test_device(), at::kDouble);
    out->weight.copy_(from->out_proj->weight);
    out->bias.copy_(from->out_proj->bias);
  }
  // Of [time, batch, features].
  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    const auto heads = [](const at::Tensor& x) {
      return x.reshape({x.size(0), x.size(1) * kHeads, kSize / kHeads}).transpose(0, 1);
    };
    const at::Tensor queries =
        heads(projections[0](q)) / std::sqrt(static_cast<double>(kSize / kHeads));
    const at::Tensor scores =
        at::softmax(at::bmm(queries, heads(projections[1](k)).transpose(1, 2)), -1);
    const at::Tensor mixed = at::bmm(scores, heads(projections[2](v))).transpose(0, 1);
    return out(mixed.reshape({q.size(0), q.size(1), kSize}));
  }
  static constexpr std::int64_t kSize = 4;
  static constexpr std::int64_t kHeads = 2;
  std::vector<nn::Linear> projections;
  nn::Linear out = nullptr;
};
TORCH_MODULE(PlainAttention);

TEST(Attention, PartsStepLikeLinearLayersOfTheirOwn) {
  constexpr std::int64_t kSize = PlainAttentionImpl::kSize;
  for (const AttentionCase& c :
       {AttentionCase{"self", false, 1}, AttentionCase{"two", false, 2},
        AttentionCase{"three", false, 3}, AttentionCase{"sizes", true, 3}}) {
    SCOPED_TRACE(c.name);
    torch::manual_seed(4);
    nn::MultiheadAttentionOptions options(kSize, PlainAttentionImpl::kHeads);
    if (c.separate) options.kdim(3).vdim(3);
    nn::MultiheadAttention attention(options);
    attention->to(test_device(), at::kDouble);
    {
      const torch::NoGradGuard no_grad;
      attention->in_proj_bias.normal_();
    }
    PlainAttention plain(attention);
    const auto source = [&](std::int64_t size) {
      return torch::randn({3, 6, size}, test_options(at::kDouble));
    };
    const at::Tensor q = source(kSize);
    const at::Tensor k = c.sources > 1 ? source(c.separate ? 3 : kSize) : q;
    const at::Tensor v = c.sources > 2 ? source(c.separate ? 3 : kSize) : k;

    std::vector<std::string> uncovered;
    std::vector<std::string> names;
    for (const TrackedLayer& one : tracked_layers(*attention, &uncovered))
      names.push_back(one.name);
    EXPECT_EQ(names.size(), 4);
    EXPECT_TRUE(uncovered.empty());
    KfacOptions with_examples = plain_options();
    with_examples.examples = number_of_examples(6);
    Preconditioner kfac(*attention, with_examples);
    Preconditioner expected(*plain, with_examples);
    for (int step = 0; step < 2; ++step) {
      attention->zero_grad();
      plain->zero_grad();
      const at::Tensor output = std::get<0>(attention(q, k, v));
      const at::Tensor same = plain(q, k, v);
      ASSERT_TRUE(at::allclose(output, same, 1e-10, 1e-12));
      output.square().sum().div(6).backward();
      same.square().sum().div(6).backward();
      kfac.step(0.1);
      expected.step(0.1);
      for (std::size_t part = 0; part < 3; ++part) {
        const auto first = static_cast<std::int64_t>(part) * kSize;
        const std::array<at::Tensor, 3> own = {attention->q_proj_weight, attention->k_proj_weight,
                                               attention->v_proj_weight};
        const at::Tensor weight = c.separate
                                      ? own[part].grad()
                                      : attention->in_proj_weight.grad().narrow(0, first, kSize);
        const nn::Linear& linear = plain->projections[part];
        EXPECT_TRUE(at::allclose(weight, linear->weight.grad(), 1e-9, 1e-11)) << part;
        EXPECT_TRUE(at::allclose(attention->in_proj_bias.grad().narrow(0, first, kSize),
                                 linear->bias.grad(), 1e-9, 1e-11))
            << part;
      }
    }
  }
}

// --- norms ---

class NormKinds : public testing::TestWithParam<KindCase> {
 protected:
  enum class Trained { kBoth, kWeight, kBias };

  void SetUp() override {
    torch::manual_seed(12);
    module = GetParam().make();
    module.ptr()->to(test_device(), at::kDouble);
    input = torch::randn(GetParam().input, test_options(at::kDouble));
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : module.ptr()->parameters()) parameter.normal_();
  }
  // [units, trained parameters]
  static at::Tensor by_units(const std::vector<at::Tensor>& parameters) {
    std::vector<at::Tensor> flat;
    for (const at::Tensor& one : parameters) flat.push_back(one.reshape({-1}));
    return at::stack(flat, 1);
  }
  static at::Tensor loss_of(const at::Tensor& output) {
    return (output.square() + output.tanh()).sum() / static_cast<double>(output.size(0));
  }
  // The gradients that parameters get from the loss of each example, from nothing but autograd.
  std::vector<at::Tensor> gradients_of_examples(const std::vector<at::Tensor>& parameters) {
    const at::Tensor output = module.forward<at::Tensor>(input);
    const at::Tensor gradient = torch::autograd::grad({loss_of(output)}, {output}, {}, true)[0];
    std::vector<at::Tensor> examples;
    for (std::int64_t n = 0; n < output.size(0); ++n) {
      at::Tensor own = at::zeros_like(gradient);
      own[n] = gradient[n] * static_cast<double>(output.size(0));
      examples.push_back(by_units(torch::autograd::grad({output}, parameters, {own}, true)));
    }
    return examples;
  }
  void expect_step(Trained trained) {
    const TrackedLayer one = tracked_layers(*module.ptr(), nullptr, true).at(0);
    std::vector<at::Tensor> parameters;
    if (trained != Trained::kBias) parameters.push_back(one.weight);
    if (trained != Trained::kWeight) parameters.push_back(one.bias);
    // (F + γ)⁻¹·∇/(1 + γ) for the block F = Σvvᵀ/N of each unit, and A = 1.
    const std::vector<at::Tensor> of_examples = gradients_of_examples(parameters);
    const at::Tensor all = at::stack(of_examples);  // [N, units, parameters]
    const at::Tensor fisher =
        (all.unsqueeze(3) * all.unsqueeze(2)).mean(0) +
        kDamping * at::eye(static_cast<std::int64_t>(parameters.size()), all.options());
    const at::Tensor wanted =
        at::linalg_solve(fisher, all.mean(0).unsqueeze(2)).squeeze(2) / (1 + kDamping);

    if (trained == Trained::kBias) one.weight.set_requires_grad(false);
    if (trained == Trained::kWeight) one.bias.set_requires_grad(false);
    KfacOptions options = plain_options();
    options.norms = true;
    Preconditioner kfac(*module.ptr(), options);
    loss_of(module.forward<at::Tensor>(input)).backward();
    kfac.step(0.1);
    std::vector<at::Tensor> updates;
    for (const at::Tensor& parameter : parameters) updates.push_back(parameter.grad());
    const at::Tensor actual = by_units(updates);
    EXPECT_TRUE(at::allclose(actual, wanted, 1e-9, 1e-11))
        << (actual - wanted).abs().max().item<double>();
  }

  nn::AnyModule module;
  at::Tensor input;
};

TEST_P(NormKinds, StepByTheExactBlocksOfTheirUnits) { expect_step(Trained::kBoth); }
TEST_P(NormKinds, StepOfAWeightAloneIsDiagonal) { expect_step(Trained::kWeight); }
TEST_P(NormKinds, StepOfABiasAloneIsDiagonal) { expect_step(Trained::kBias); }

std::vector<KindCase> norm_cases() {
  const auto affine = nn::InstanceNorm2dOptions(4).affine(true);
  return {
      {"LayerNorm", [] { return nn::AnyModule(nn::LayerNorm(nn::LayerNormOptions({4}))); }, {5, 4}},
      {"LayerNormOfTokens",
       [] { return nn::AnyModule(nn::LayerNorm(nn::LayerNormOptions({4}))); },
       {5, 2, 3, 4}},
      {"LayerNormOfTwoDimensions",
       [] {
         return nn::AnyModule(nn::LayerNorm(nn::LayerNormOptions({3, 4})));
       },
       {5, 2, 3, 4}},
      {"GroupNorm", [] { return nn::AnyModule(nn::GroupNorm(2, 4)); }, {5, 4, 3, 2}},
      {"BatchNorm1d", [] { return nn::AnyModule(nn::BatchNorm1d(4)); }, {5, 4}},
      {"BatchNorm1dOfSequences", [] { return nn::AnyModule(nn::BatchNorm1d(4)); }, {5, 4, 6}},
      {"BatchNorm2d", [] { return nn::AnyModule(nn::BatchNorm2d(4)); }, {5, 4, 2, 3}},
      {"BatchNorm3d", [] { return nn::AnyModule(nn::BatchNorm3d(4)); }, {5, 4, 2, 3, 2}},
      {"InstanceNorm2d",
       [affine] { return nn::AnyModule(nn::InstanceNorm2d(affine)); },
       {5, 4, 2, 3}},
      {"OneUnit", [] { return nn::AnyModule(nn::BatchNorm2d(1)); }, {5, 1, 2, 3}},
  };
}

INSTANTIATE_TEST_SUITE_P(OfModules, NormKinds, testing::ValuesIn(norm_cases()),
                         [](const auto& tested) { return tested.param.name; });

TEST(Norms, AreCoveredWhereTheyAreWanted) {
  nn::Sequential model(nn::Linear(3, 4), nn::LayerNorm(nn::LayerNormOptions({4})));
  std::vector<std::string> uncovered;
  EXPECT_EQ(tracked_layers(*model, &uncovered).size(), 1);
  EXPECT_TRUE(uncovered.empty());
  EXPECT_EQ(tracked_layers(*model, &uncovered, /*norms=*/true).size(), 2);
}

// --- on several ranks ---

// A convolution of each dimension, a transposed one, attention, norms; sizes chosen small.
struct ManyKindsImpl : nn::Module {
  ManyKindsImpl() {
    line = register_module("line", nn::Conv1d(nn::Conv1dOptions(2, 4, 3).padding(1)));
    wider = register_module("wider",
                            nn::ConvTranspose1d(nn::ConvTranspose1dOptions(4, 4, 2).stride(2)));
    table = register_module("table", nn::Embedding(nn::EmbeddingOptions(3, 4).padding_idx(0)));
    attention = register_module("attention", nn::MultiheadAttention(4, 2));
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({4})));
    space = register_module("space", nn::Conv3d(nn::Conv3dOptions(4, 3, 2)));
    channels = register_module("channels", nn::GroupNorm(3, 3));
    up =
        register_module("up", nn::ConvTranspose3d(nn::ConvTranspose3dOptions(3, 2, 2).bias(false)));
    out = register_module("out", nn::Linear(2 * 2 * 2 * 2, 2));
    set_parameters(*this);
  }
  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor wide = torch::tanh(wider(torch::tanh(line(input))));  // [N, 4, 8]
    const at::Tensor looked_up = table(input.gt(0).to(at::kLong).sum(1));  // [N, 4, 4]
    const at::Tensor steps = wide.permute({2, 0, 1}) + looked_up.repeat({1, 2, 1}).transpose(0, 1);
    const at::Tensor even = norm(steps);  // [8, N, 4]: the examples are dimension 1
    const at::Tensor mixed = std::get<0>(attention(even, even, even)).permute({1, 2, 0});
    const at::Tensor volume = torch::tanh(channels(space(mixed.reshape({-1, 4, 2, 2, 2}))));
    return out(torch::tanh(up(volume)).flatten(1));
  }
  nn::Conv1d line = nullptr;
  nn::ConvTranspose1d wider = nullptr;
  nn::Embedding table = nullptr;
  nn::MultiheadAttention attention = nullptr;
  nn::LayerNorm norm = nullptr;
  nn::Conv3d space = nullptr;
  nn::GroupNorm channels = nullptr;
  nn::ConvTranspose3d up = nullptr;
  nn::Linear out = nullptr;
};
TORCH_MODULE(ManyKinds);

at::Tensor trained_kinds(const Distribution& distribution, const std::vector<at::Tensor>& inputs,
                         int rank, std::int64_t rows) {
  ManyKinds model;
  KfacOptions options{.damping = 0.1};
  options.norms = true;
  Preconditioner kfac(*model, options, distribution);
  for (const at::Tensor& all : inputs) {
    model->zero_grad();
    model(all.narrow(0, rank * rows, rows)).square().mean().backward();
    kfac.step(0.05);
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : model->parameters()) parameter.sub_(parameter.grad(), 0.05);
  }
  std::vector<at::Tensor> parts;
  for (const at::Tensor& one : model->parameters()) parts.push_back(one.detach().reshape({-1}));
  return at::cat(parts);
}

// An algorithm and the number of ranks.
class KindsOnRanks : public testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(KindsOnRanks, EqualOneRankOnTheJoinedBatch) {
  if (support::on_cuda()) GTEST_SKIP() << "ranks that are threads take tensors of the CPU";
  at::set_num_threads(1);
  constexpr std::int64_t kExamples = 12;
  const auto& [algorithm, world] = GetParam();
  const std::int64_t rows = kExamples / world;
  torch::manual_seed(21);
  std::vector<at::Tensor> inputs;
  for (int step = 0; step < 4; ++step) {
    inputs.push_back(torch::randn({kExamples, 2, 4}, at::kDouble));
  }
  CostModel costs = support::affine_costs(world, 2e-6, 1e-8, CubicInverse{1e-5, 0, 0, 1e-7});
  costs.compute = ComputeRates{FlopsPerSecond(1e9), FlopsPerSecond(1e9), FlopsPerSecond(1e9)};
  std::vector<at::Tensor> after(static_cast<std::size_t>(world));
  run_ranks(world, [&, algorithm = algorithm](const std::shared_ptr<Communicator>& communicator) {
    Distribution distribution;
    distribution.communicator = communicator;
    distribution.plans = PlanForCosts{costs, preset(algorithm)};
    distribution.profile_steps = 0;
    const int rank = communicator->rank();
    after[static_cast<std::size_t>(rank)] = trained_kinds(distribution, inputs, rank, rows);
  });
  Distribution alone;
  alone.plans = MeasureHere{.options = preset(algorithm)};
  const at::Tensor expected = trained_kinds(alone, inputs, 0, kExamples);
  for (const at::Tensor& of_rank : after) {
    EXPECT_TRUE(at::equal(of_rank, after.front()));
    EXPECT_LT((of_rank - expected).abs().max().item<double>(), 1e-8);
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, KindsOnRanks,
                         testing::Combine(testing::Values("d-kfac", "mpd-kfac", "spd-kfac",
                                                          "owner-reduce", "owner-precondition"),
                                          testing::Values(1, 2, 4)),
                         [](const auto& tested) {
                           std::string name = std::get<0>(tested.param);
                           std::erase(name, '-');
                           return name + std::to_string(std::get<1>(tested.param));
                         });

}  // namespace
}  // namespace spdkfac
