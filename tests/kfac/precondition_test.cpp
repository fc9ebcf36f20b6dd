// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/precondition.h"

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kfac/factor_cases.h"
#include "spdkfac/kfac/factor.h"
#include "spdkfac/kfac/inverse.h"
#include "spdkfac/kfac/precondition_batch.h"
#include "support/device.h"
#include "support/kfac_reference.h"
#include "support/kronecker.h"
#include "support/tensors.h"

namespace spdkfac {
namespace {

using support::FactorCase;
using support::Layout;
using support::near_within;
using support::normal;
using support::test_options;
using support::to_device;
using support::to_host;

constexpr double kGamma = 0.01;
// A⊗G with this damping has a condition below 1e6: 1e6 times the epsilon of double, and slack.
constexpr double kRelative = 1e-8;

// A layer's weight gradient and bias gradient, the latter undefined without a bias.
struct Gradients {
  explicit Gradients(const FactorCase& c, std::uint64_t seed, at::ScalarType type = at::kDouble) {
    std::vector<std::int64_t> sizes = {c.outputs, c.input.back()};
    if (c.conv) {
      sizes = {c.outputs, c.input[1] / c.conv->groups, c.conv->kernel[0], c.conv->kernel[1]};
    }
    weight = to_device(normal(seed, sizes), type);
    if (c.bias) bias = to_device(normal(seed + 1, {c.outputs}), type);
  }
  at::Tensor weight;
  at::Tensor bias;
};

std::int64_t groups_of(const FactorCase& c) { return c.conv ? c.conv->groups : 1; }

// [groups, out, in·kh·kw | bias] by the definition, in double precision on the CPU.
at::Tensor joined_reference(const Gradients& gradients, std::int64_t groups) {
  at::Tensor weight = to_host(gradients.weight);
  if (weight.dim() == 2) weight = weight.view({weight.size(0), weight.size(1), 1, 1});
  const auto w = weight.accessor<double, 4>();
  const std::int64_t outputs = weight.size(0) / groups;
  const std::int64_t inputs = weight[0].numel();
  const bool has_bias = gradients.bias.defined();
  at::Tensor joined = at::zeros({groups, outputs, inputs + (has_bias ? 1 : 0)}, at::kDouble);
  auto to = joined.accessor<double, 3>();
  for (std::int64_t group = 0; group < groups; ++group) {
    for (std::int64_t o = 0; o < outputs; ++o) {
      std::int64_t place = 0;
      for (std::int64_t c = 0; c < weight.size(1); ++c) {
        for (std::int64_t r = 0; r < weight.size(2); ++r) {
          for (std::int64_t s = 0; s < weight.size(3); ++s) {
            to[group][o][place++] = w[group * outputs + o][c][r][s];
          }
        }
      }
      if (has_bias)
        to[group][o][place] = to_host(gradients.bias)[group * outputs + o].item<double>();
    }
  }
  return joined;
}

at::Tensor joined_by_library(const Gradients& gradients, std::int64_t groups) {
  const at::Tensor shape = joined_reference(gradients, groups);
  at::Tensor joined =
      at::full(shape.sizes(), std::numeric_limits<double>::quiet_NaN(), gradients.weight.options());
  kfac::join_gradient(gradients.weight, gradients.bias, joined);
  return joined;
}

// Small enough to write A⊗G out: d_a·d_g is at most 400.
std::vector<FactorCase> small_layers() {
  const kfac::ConvGeometry three{{3, 3}, {1, 1}, {1, 1}};
  kfac::ConvGeometry grouped = three;
  grouped.groups = 3;
  kfac::ConvGeometry depthwise = three;
  depthwise.groups = 4;
  return {
      {{7, 10}, std::nullopt, 8, true},
      {{7, 10}, std::nullopt, 8, false},
      {{3, 19}, std::nullopt, 20, true},  // fewer examples than dimensions
      {{1, 6}, std::nullopt, 5, true},
      {{4, 3, 8}, std::nullopt, 6, true},
      {{3, 3, 6, 5}, three, 12, true},
      {{3, 3, 6, 5}, three, 12, false},
      {{3, 6, 5, 5}, grouped, 9, true},
      {{3, 6, 5, 5}, grouped, 9, false},
      {{2, 4, 6, 6}, depthwise, 8, true},
      {{2, 5, 4, 4}, kfac::ConvGeometry{}, 7, true},
      {{2, 2, 7, 9}, kfac::ConvGeometry{{2, 3}, {2, 1}, {1, 0}, {1, 2}, 2}, 10, true},
  };
}

class PreconditionedLayer : public ::testing::TestWithParam<FactorCase> {
 protected:
  const FactorCase& c() const { return GetParam(); }
};

// What the library makes of both factors and a gradient, [groups, d_g, d_a].
at::Tensor preconditioned(const at::Tensor& factor_a, const at::Tensor& factor_g,
                          const at::Tensor& gradient, Damping mode) {
  const auto [damping_a, damping_g] = kfac::damping_of(factor_a, factor_g, mode, kGamma);
  kfac::Inverse a({factor_a.size(1), factor_a.size(0)}, factor_a.options());
  kfac::Inverse g({factor_g.size(1), factor_g.size(0)}, factor_g.options());
  kfac::refresh_inverse(factor_a, damping_a, a);
  kfac::refresh_inverse(factor_g, damping_g, g);
  const at::Tensor nan = at::full_like(gradient, std::numeric_limits<double>::quiet_NaN());
  const at::Tensor out = nan.clone();
  kfac::precondition(gradient, a.value, g.value, nan, out);
  return out;
}

// The factor of one group with what each mode adds to its diagonal, from the definition.
std::pair<at::Tensor, at::Tensor> damped_reference(const at::Tensor& a, const at::Tensor& g,
                                                   Damping mode) {
  double add_a = kGamma;
  double add_g = kGamma;
  if (mode == Damping::kPi) {
    const double mean_a = a.trace().item<double>() / static_cast<double>(a.size(0));
    const double mean_g = g.trace().item<double>() / static_cast<double>(g.size(0));
    const double pi = std::sqrt(mean_a / mean_g);
    add_a = pi * std::sqrt(kGamma);
    add_g = std::sqrt(kGamma) / pi;
  }
  return {a + add_a * at::eye(a.size(0), at::kDouble), g + add_g * at::eye(g.size(0), at::kDouble)};
}

TEST_P(PreconditionedLayer, SolvesWithTheExplicitKroneckerProduct) {
  const std::int64_t groups = groups_of(c());
  const at::Tensor factor_a = support::input_factor_reference(
      normal(1, c().input), c().conv, c().bias, Convention::kKfc, c().positions());
  const at::Tensor factor_g = support::gradient_factor_reference(
      normal(2, c().output()) / c().examples(), c().conv, Convention::kKfc, c().positions());
  ASSERT_LE(factor_a.size(1) * factor_g.size(1), 400);
  const Gradients gradients(c(), 3);
  const at::Tensor joined = joined_reference(gradients, groups);

  for (const Damping mode : {Damping::kPlain, Damping::kPi}) {
    const at::Tensor v =
        preconditioned(to_device(factor_a, at::kDouble), to_device(factor_g, at::kDouble),
                       joined_by_library(gradients, groups), mode);
    for (std::int64_t group = 0; group < groups; ++group) {
      const auto [a, g] = damped_reference(factor_a[group], factor_g[group], mode);
      const at::Tensor solution = at::linalg_solve(
          support::kronecker(a, g), support::stacked_columns(joined[group]).unsqueeze(1));
      const at::Tensor expected = support::unstacked_columns(solution.squeeze(1), g.size(0));
      const double largest = expected.abs().max().item<double>();
      EXPECT_TRUE(near_within(v[group], expected, kRelative * largest)) << "group " << group;
    }
  }
}

// `kfc` and `paper` share the product A⊗G; with π they also share its damping.
TEST_P(PreconditionedLayer, IsTheSameInConventionsThatKeepTheProduct) {
  const at::Tensor input = to_device(normal(1, c().input), at::kDouble);
  const at::Tensor gradient = to_device(normal(2, c().output()) / c().examples(), at::kDouble);
  const at::Tensor joined = joined_by_library(Gradients(c(), 3), groups_of(c()));
  const auto in = [&](Convention convention, Damping mode) {
    return preconditioned(kfac::input_factor(input, c().use(), convention),
                          kfac::gradient_factor(gradient, c().use(), convention), joined, mode);
  };
  const at::Tensor kfc = in(Convention::kKfc, Damping::kPi);
  const double largest = kfc.abs().max().item<double>();
  EXPECT_TRUE(near_within(in(Convention::kPaper, Damping::kPi), kfc, kRelative * largest));
  if (c().positions() == 1) return;
  // Plain damping does depend on it: the agreement above is not for nothing.
  const at::Tensor plain = in(Convention::kKfc, Damping::kPlain);
  EXPECT_FALSE(at::allclose(in(Convention::kPaper, Damping::kPlain), plain, 1e-3, 0));
}

TEST_P(PreconditionedLayer, GradientJoinsInPatchOrderAndSplitsBack) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const Gradients gradients(c(), 3, type);
    const at::Tensor joined = joined_by_library(gradients, groups_of(c()));
    EXPECT_TRUE(at::equal(to_host(joined), joined_reference(gradients, groups_of(c()))));
    const at::Tensor weight = at::zeros_like(gradients.weight);
    const at::Tensor bias = c().bias ? at::zeros_like(gradients.bias) : at::Tensor();
    kfac::split_gradient(joined, weight, bias);
    EXPECT_TRUE(at::equal(weight, gradients.weight));
    if (c().bias) {
      EXPECT_TRUE(at::equal(bias, gradients.bias));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, PreconditionedLayer, ::testing::ValuesIn(small_layers()));

// Layers whose inverses have margins on a GPU (aligned.h).
std::vector<FactorCase> layers_with_margins() {
  return {{{5, 68}, std::nullopt, 67, true},
          {{5, 64}, std::nullopt, 3, true},
          {{5, 7}, std::nullopt, 101, false},
          {{2, 16, 5, 5}, kfac::ConvGeometry{{3, 3}, {1, 1}, {0, 0}, {1, 1}, 2}, 134, true}};
}

// As a refresh makes it: with a margin where it is large.
at::Tensor inverse_like(std::uint64_t seed, std::int64_t groups, std::int64_t dim,
                        at::ScalarType type) {
  at::Tensor values = normal(seed, {groups, dim, dim});
  values.diagonal(0, 1, 2).abs_();
  const kfac::Inverse inverse({dim, groups}, test_options(type));
  return inverse.value.copy_(to_device(values, type));
}

// Gradients that move from step to step, some with their channels side by side, one bias frozen.
TEST(PreconditionBatch, EqualsProductsInDoublePrecisionAlsoWhenReplayed) {
  if (!support::on_cuda()) GTEST_SKIP() << "run with SPDKFAC_TEST_DEVICE=cuda";
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    std::vector<FactorCase> layers = small_layers();
    for (const FactorCase& one : layers_with_margins()) layers.push_back(one);
    for (int more = 0; more < 70; ++more) layers.push_back(layers[static_cast<std::size_t>(more)]);
    std::vector<kfac::PreconditionBatch::Task> tasks;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const at::Tensor joined = joined_reference(Gradients(layers[i], 3), groups_of(layers[i]));
      const auto inverse = [&](std::uint64_t seed, std::int64_t dim) {
        return inverse_like(seed, joined.size(0), dim, type);
      };
      tasks.push_back({inverse(2 * i, joined.size(2)), inverse(2 * i + 1, joined.size(1))});
    }
    constexpr std::size_t kWithoutInverse = 3;
    tasks[kWithoutInverse].inverse_g.zero_();
    kfac::PreconditionBatch batch(tasks, Precision::kFp32);
    const double relative = type == at::kFloat ? 1e-5 : 1e-13;
    for (std::uint64_t step = 0; step < 4; ++step) {
      std::vector<kfac::PreconditionBatch::Gradients> gradients;
      std::vector<at::Tensor> expected;
      std::vector<double> inner;
      std::vector<double> magnitude;
      for (std::size_t i = 0; i < layers.size(); ++i) {
        Gradients own(layers[i], 1000 * (step + 1) + i, type);
        if (own.weight.dim() == 4 && (i + step) % 2 == 0) {
          own.weight = own.weight.contiguous(at::MemoryFormat::ChannelsLast);
        }
        at::Tensor joined = joined_reference(own, groups_of(layers[i]));
        const bool frozen = i == 0;
        if (frozen) {
          joined.select(2, joined.size(2) - 1).zero_();
          own.bias = at::Tensor();
        }
        expected.push_back(at::matmul(at::matmul(to_host(tasks[i].inverse_g), joined),
                                      to_host(tasks[i].inverse_a)));
        inner.push_back(std::max(0.0, (expected.back() * joined).sum().item<double>()));
        if (i == kWithoutInverse) {
          expected.back() = joined.clone();
          inner.back() = -(joined * joined).sum().item<double>();
        }
        magnitude.push_back((expected.back() * joined).abs().sum().item<double>());
        gradients.push_back({own.weight, own.bias});
      }
      const at::Tensor products = to_host(batch.run(gradients));
      for (std::size_t i = 0; i < layers.size(); ++i) {
        EXPECT_NEAR(products[static_cast<std::int64_t>(i)].item<double>(), inner[i],
                    relative * magnitude[i])
            << "layer " << i << " step " << step;
        Gradients after(layers[i], 0, type);
        after.weight = gradients[i].weight;
        after.bias = gradients[i].bias;
        at::Tensor wanted = expected[i];
        if (i == 0) wanted = wanted.narrow(2, 0, wanted.size(2) - 1);
        EXPECT_TRUE(near_within(joined_reference(after, groups_of(layers[i])), wanted,
                                relative * expected[i].abs().max().item<double>()))
            << "layer " << i << " step " << step;
      }
    }
  }
}

// The reference is the same work one by one, on the CPU. One step has a gradient that is too large.
TEST(PreconditionBatch, GraftsAsWellAlsoWhenReplayed) {
  constexpr std::uint64_t kBadStep = 2;
  if (!support::on_cuda()) GTEST_SKIP() << "run with SPDKFAC_TEST_DEVICE=cuda";
  std::vector<FactorCase> layers = small_layers();
  for (const FactorCase& one : layers_with_margins()) layers.push_back(one);
  std::erase_if(layers, [](const FactorCase& c) { return c.conv && c.conv->groups > 1; });
  for (const Graft method : {Graft::kSgd, Graft::kAdam}) {
    const kfac::GraftRule rule{method, {.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-8}};
    std::vector<kfac::PreconditionBatch::Task> tasks;
    std::vector<kfac::AdamMoments> moments;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const at::Tensor joined = joined_reference(Gradients(layers[i], 3), 1);
      const auto inverse = [&](std::uint64_t seed, std::int64_t dim) {
        return inverse_like(seed, 1, dim, at::kDouble);
      };
      tasks.push_back({inverse(2 * i, joined.size(2)), inverse(2 * i + 1, joined.size(1))});
      if (method != Graft::kAdam) continue;
      tasks.back().moments.emplace(joined.numel(), test_options(at::kDouble));
      moments.emplace_back(joined.numel(), at::TensorOptions(at::kDouble));
    }
    kfac::PreconditionBatch batch(tasks, Precision::kFp32, rule);
    for (std::uint64_t step = 0; step < 4; ++step) {
      std::vector<kfac::PreconditionBatch::Gradients> gradients;
      std::vector<kfac::GraftedLayer> before;
      for (std::size_t i = 0; i < layers.size(); ++i) {
        const Gradients own(layers[i], 1000 * (step + 1) + i);
        if (step == kBadStep && i == 1) own.weight.view({-1})[0] = 1e200;  // its square is infinite
        before.push_back({{joined_reference(own, 1)}, moments.empty() ? nullptr : &moments[i]});
        gradients.push_back({own.weight, own.bias});
      }
      const at::Tensor lengths = kfac::graft_lengths(before, rule);
      std::vector<kfac::GraftedLayer> expected;
      for (std::size_t i = 0; i < layers.size(); ++i) {
        expected.push_back(
            {{at::matmul(at::matmul(to_host(tasks[i].inverse_g), before[i].gradients.front()),
                         to_host(tasks[i].inverse_a))}});
      }
      kfac::set_lengths(expected, lengths);
      batch.run(gradients);
      for (std::size_t i = 0; i < layers.size(); ++i) {
        Gradients after(layers[i], 0);
        after.weight = gradients[i].weight;
        after.bias = gradients[i].bias;
        const at::Tensor found = joined_reference(after, 1);
        if (step == kBadStep && method == Graft::kAdam) {
          EXPECT_TRUE(found.isnan().all().item<bool>()) << "layer " << i;
        } else if (step != kBadStep) {
          EXPECT_TRUE(near_within(found, expected[i].gradients.front(), 1e-10))
              << "layer " << i << " step " << step;
        }
      }
    }
    for (std::size_t i = 0; i < moments.size(); ++i) {
      EXPECT_TRUE(near_within(tasks[i].moments->first, moments[i].first, 1e-12)) << i;
      EXPECT_TRUE(near_within(tasks[i].moments->second, moments[i].second, 1e-12)) << i;
      EXPECT_EQ(tasks[i].moments->steps.item<double>(), 4);
    }
  }
}

// Weights [in, out], as transformers' Conv1D has them. The reference is the matrix [out, in | bias]
// on the CPU, with moments in the order of the parameters.
TEST(PreconditionBatch, TakesWeightsWhoseRowsAreInputs) {
  if (!support::on_cuda()) GTEST_SKIP() << "run with SPDKFAC_TEST_DEVICE=cuda";
  struct Case {
    std::int64_t in;
    std::int64_t out;
    bool bias;
  };
  const std::vector<Case> layers = {{70, 67, true}, {66, 66, true}, {66, 66, false},
                                    {3, 5, true},   {5, 4, false},  {4, 5, true}};
  const auto joined = [](const Case& c, const std::vector<at::Tensor>& own) {
    const at::Tensor matrix = own[0].t();
    return (c.bias ? at::cat({matrix, own[1].unsqueeze(1)}, 1) : matrix).unsqueeze(0);
  };
  for (const Graft method : {Graft::kNone, Graft::kSgd, Graft::kAdam}) {
    const kfac::GraftRule rule{method, {.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-8}};
    std::vector<kfac::PreconditionBatch::Task> tasks;
    std::vector<kfac::AdamMoments> moments;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const auto& [in, out, bias] = layers[i];
      tasks.push_back({inverse_like(2 * i, 1, in + (bias ? 1 : 0), at::kDouble),
                       inverse_like(2 * i + 1, 1, out, at::kDouble), /*rows_are_inputs=*/true,
                       bias});
      const std::int64_t elements = in * out + (bias ? out : 0);
      if (method == Graft::kAdam) tasks.back().moments.emplace(elements, test_options(at::kDouble));
      moments.emplace_back(elements, at::TensorOptions(at::kDouble));
    }
    kfac::PreconditionBatch batch(tasks, Precision::kFp32, rule);
    for (std::uint64_t step = 0; step < 3; ++step) {
      std::vector<kfac::PreconditionBatch::Gradients> gradients;
      std::vector<kfac::GraftedLayer> expected;
      for (std::size_t i = 0; i < layers.size(); ++i) {
        const auto& [in, out, bias] = layers[i];
        std::vector<at::Tensor> own = {normal(1000 * (step + 1) + i, {in, out})};
        if (bias) own.push_back(normal(2000 * (step + 1) + i, {out}));
        gradients.push_back({to_device(own[0], at::kDouble).clone(),
                             bias ? to_device(own[1], at::kDouble).clone() : at::Tensor()});
        expected.push_back({own, method == Graft::kAdam ? &moments[i] : nullptr});
      }
      at::Tensor lengths;
      if (method != Graft::kNone) lengths = kfac::graft_lengths(expected, rule);
      for (std::size_t i = 0; i < layers.size(); ++i) {
        const Case& c = layers[i];
        std::vector<at::Tensor>& own = expected[i].gradients;
        const at::Tensor solved =
            at::matmul(at::matmul(to_host(tasks[i].inverse_g), joined(c, own)),
                       to_host(tasks[i].inverse_a))[0];
        own[0] = solved.narrow(1, 0, c.in).t().contiguous();
        if (c.bias) own[1] = solved.select(1, c.in).contiguous();
      }
      if (method != Graft::kNone) kfac::set_lengths(expected, lengths);
      batch.run(gradients);
      for (std::size_t i = 0; i < layers.size(); ++i) {
        const double largest = expected[i].gradients[0].abs().max().item<double>();
        EXPECT_TRUE(near_within(gradients[i].weight, expected[i].gradients[0], 1e-11 * largest))
            << "layer " << i << " step " << step;
        if (!layers[i].bias) continue;
        EXPECT_TRUE(near_within(gradients[i].bias, expected[i].gradients[1], 1e-11 * largest))
            << "layer " << i << " step " << step;
      }
    }
    for (std::size_t i = 0; method == Graft::kAdam && i < moments.size(); ++i) {
      EXPECT_TRUE(near_within(tasks[i].moments->first, moments[i].first, 1e-12)) << i;
      EXPECT_TRUE(near_within(tasks[i].moments->second, moments[i].second, 1e-12)) << i;
    }
  }
}

// Gradients of models in channels-last memory have its strides.
TEST(JoinGradient, TakesAndGivesChannelsLastWeights) {
  const FactorCase c{{2, 4, 5, 5}, kfac::ConvGeometry{{3, 2}, {1, 1}, {0, 0}, {1, 1}, 2}, 6, true};
  Gradients gradients(c, 1);
  gradients.weight = gradients.weight.contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor joined = joined_by_library(gradients, 2);
  EXPECT_TRUE(at::equal(to_host(joined), joined_reference(gradients, 2)));
  const at::Tensor weight = at::zeros_like(gradients.weight);
  const at::Tensor bias = at::zeros_like(gradients.bias);
  ASSERT_FALSE(weight.is_contiguous());
  kfac::split_gradient(joined, weight, bias);
  EXPECT_TRUE(at::equal(weight, gradients.weight));
  EXPECT_TRUE(at::equal(bias, gradients.bias));
}

TEST(JoinGradient, WritesWithinALargerBufferOnly) {
  const Gradients gradients(FactorCase{{2, 3}, std::nullopt, 4, true}, 1);
  const at::Tensor buffer = at::full({3, 4, 4}, 9, test_options(at::kDouble));
  kfac::join_gradient(gradients.weight, gradients.bias, buffer.narrow(0, 1, 1));
  EXPECT_TRUE(at::equal(to_host(buffer[1]), joined_reference(gradients, 1)[0]));
  EXPECT_TRUE(at::equal(buffer[0], at::full_like(buffer[0], 9)));
  EXPECT_TRUE(at::equal(buffer[2], at::full_like(buffer[2], 9)));
}

TEST(Precondition, WithIdentitiesIsTheGradient) {
  const at::Tensor gradient = to_device(normal(1, {2, 3, 5}), at::kFloat);
  const at::Tensor before = gradient.clone();
  const at::Tensor a = at::eye(5, test_options(at::kFloat)).expand({2, 5, 5});
  const at::Tensor g = at::eye(3, test_options(at::kFloat)).expand({2, 3, 3});
  const at::Tensor out = at::zeros_like(gradient);
  kfac::precondition(gradient, a, g, at::zeros_like(gradient), out);
  EXPECT_TRUE(at::equal(out, before));
  EXPECT_TRUE(at::equal(gradient, before));
}

double clip(double inner, double kappa, double learning_rate) {
  const at::Tensor scale =
      kfac::kl_clip_scale(at::full({}, inner, test_options(at::kDouble)), kappa, learning_rate);
  EXPECT_EQ(scale.dim(), 0);
  EXPECT_EQ(scale.device(), support::test_device());
  return scale.item<double>();
}

TEST(KlClipScale, FollowsTheFormula) {
  // √(0.001/(0.1²·4)) = √0.025; √(0.001/(0.5²·0.1)) = √0.04.
  EXPECT_NEAR(clip(4, 0.001, 0.1), std::sqrt(0.025), 1e-15);
  EXPECT_NEAR(clip(0.1, 0.001, 0.5), 0.2, 1e-15);
  // Non-positive curvature counts by its size.
  EXPECT_NEAR(clip(-4, 0.001, 0.1), std::sqrt(0.025), 1e-15);
}

TEST(KlClipScale, NeverEnlarges) {
  // 0.001/(0.1²·0.05) = 2.
  EXPECT_EQ(clip(0.05, 0.001, 0.1), 1);
  EXPECT_EQ(clip(1e-300, 0.001, 0.1), 1);
}

TEST(KlClipScale, IsOneWhereThereIsNothingToClip) {
  EXPECT_EQ(clip(0, 0.001, 0.1), 1) << "no gradient";
  EXPECT_EQ(clip(4, 0, 0.1), 1) << "switched off";
  EXPECT_EQ(clip(4, 0.001, 0), 1) << "no step";
  EXPECT_EQ(clip(0, 0, 0), 1);
}

TEST(KlClipScale, SmallLearningRatesStayInTheRangeOfFloat) {
  // lr² = 1e-50 is zero in float; 0.001/(1e-50·1e38) = 1e9 is no reason to clip.
  const at::Tensor inner = at::full({}, 1e38, test_options(at::kFloat));
  EXPECT_EQ(kfac::kl_clip_scale(inner, 0.001, 1e-25).item<double>(), 1);
  // √(0.001/(1²·1e38)) = √1e-41, though 1e-41 has few digits in float.
  EXPECT_NEAR(kfac::kl_clip_scale(inner, 0.001, 1).item<double>(), std::sqrt(1e-41),
              1e-3 * 3.2e-21);
}

// Two layers with inverses, V = 2·∇W and V = 8·∇W: quotients of 2 and 8, whose geometric mean is 4.
// The third has none, and the fourth no gradient.
TEST(LayerScales, ALayerWithoutInversesIsScaledByTheGeometricMeanOfTheOthers) {
  const at::Tensor inner = at::tensor({2. * 3, 8. * 5, -7., 0.}, at::kDouble);
  const at::Tensor squares = at::tensor({4. * 3, 64. * 5, 7., 0.}, at::kDouble);
  const kfac::LayerScales scales = kfac::scales_of_layers(inner, squares);
  EXPECT_TRUE(at::allclose(scales.scales, at::tensor({1., 1., 4., 1.}, at::kDouble)));
  EXPECT_NEAR(scales.inner.item<double>(), 2 * 3 + 8 * 5 + 4 * 7, 1e-12);
  EXPECT_TRUE(at::equal(scales.raw.to(at::kDouble), at::tensor({0., 0., 1., 0.}, at::kDouble)));
}

TEST(LayerScales, WithoutAnyInverseGradientsStayAsTheyAre) {
  const at::Tensor inner = at::tensor({-3., -5.}, at::kDouble);
  const kfac::LayerScales scales = kfac::scales_of_layers(inner, -inner);
  EXPECT_TRUE(at::equal(scales.scales, at::ones({2}, at::kDouble)));
  EXPECT_EQ(scales.inner.item<double>(), 8);
}

TEST(InnerProduct, WithoutAnInverseTheGradientIsTheResult) {
  const at::Tensor gradient = normal(1, {1, 2, 3});
  const at::Tensor some = at::ones({1, 3, 3}, at::kDouble);
  const at::Tensor none = at::zeros({1, 2, 2}, at::kDouble);
  at::Tensor out = at::zeros_like(gradient);
  const at::Tensor inner = kfac::inner_product(gradient, some, none, out);
  EXPECT_TRUE(at::equal(out, gradient));
  EXPECT_NEAR(inner.item<double>(), -gradient.square().sum().item<double>(), 1e-12);
}

}  // namespace
}  // namespace spdkfac
