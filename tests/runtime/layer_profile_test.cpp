// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/layer_profile.h"

#include <gtest/gtest.h>

#include "runtime/events_fixture.h"

namespace spdkfac {
namespace {

using namespace support;  // NOLINT(google-build-using-namespace)

// Two layers, the second with twice the arithmetic; tracked in the reverse order of their calls.
std::vector<LayerSpec> two_specs() {
  LayerSpec first;
  first.d_a = 2;
  first.d_g = 1;
  first.flops = LayerFlops{Flops(10), Flops(0), Flops(0)};
  LayerSpec second = first;
  second.d_g = 3;
  second.flops = LayerFlops{Flops(20), Flops(0), Flops(0)};
  return {first, second};
}
const std::vector<std::size_t> kOrder = {1, 0};

// Forward: visits of layer 1 (0..1), layer 0 (3..4); backward: layer 0 (6..7), layer 1 (8..9); the
// passes end at 12. So forward of layer 0 is 2, backward of layer 0 is 1 and of layer 1 is 3.
std::shared_ptr<runtime::StepEvents> timed_passes() {
  const auto step = std::make_shared<runtime::StepEvents>();
  const FactorSide a = FactorSide::kA;
  const FactorSide g = FactorSide::kG;
  step->parts.push_back(step_event(runtime::StepPart::kVisit, {{{1, a}}}, 0, 1));
  step->parts.push_back(step_event(runtime::StepPart::kVisit, {{{0, a}}}, 3, 4));
  step->parts.push_back(step_event(runtime::StepPart::kVisit, {{{0, g}}}, 6, 7));
  step->parts.push_back(step_event(runtime::StepPart::kVisit, {{{1, g}}}, 8, 9));
  step->passes_end = at_second(12);
  step->end = at_second(20);
  return step;
}

void expect_seconds(Seconds actual, double expected) {
  EXPECT_NEAR(actual.value(), expected, 1e-9);
}

TEST(LayerProfile, PassesLieBetweenVisits) {
  const runtime::RankProfile profile = runtime::profile_of({timed_passes()}, two_specs(), kOrder);
  ASSERT_EQ(profile.layers.size(), 2U);
  expect_seconds(profile.layers[1].forward, 2);
  expect_seconds(profile.layers[0].forward, 1);  // half the arithmetic of the other
  expect_seconds(profile.layers[1].backward, 1);
  expect_seconds(profile.layers[0].backward, 3);
  // The first forward pass is in no part of the step.
  expect_seconds(profile.steps.at(0)[runtime::RankProfile::kPasses], 2 + 1 + 3);
}

TEST(LayerProfile, FactorsAreMeansOverTheStepsThatComputedThem) {
  const auto with_factors = timed_passes();
  with_factors->parts.push_back(
      step_event(runtime::StepPart::kFactor, {{{1, FactorSide::kG}}}, 8.25, 8.75));
  with_factors->parts.push_back(
      step_event(runtime::StepPart::kPack, {{{1, FactorSide::kG}}}, 8.75, 9));
  with_factors->parts.push_back(
      step_event(runtime::StepPart::kPack, {}, 9, 10));  // counts for none
  const runtime::RankProfile profile =
      runtime::profile_of({with_factors, timed_passes()}, two_specs(), kOrder);
  expect_seconds(profile.layers[0].factor_g, 0.75);
  expect_seconds(profile.layers[0].factor_a, 0);
  EXPECT_EQ(profile.steps.size(), 2U);
}

TEST(LayerProfile, InversesShareTheTimeOfTheirBatch) {
  const auto step = timed_passes();
  step->parts.push_back(step_event(runtime::StepPart::kInverse,
                                   {{{0, FactorSide::kA}, 0.75}, {{1, FactorSide::kG}, 0.25}}, 13,
                                   17));
  const runtime::RankProfile profile = runtime::profile_of({step}, two_specs(), kOrder);
  expect_seconds(profile.layers[1].inverse_a.value(), 3);
  expect_seconds(profile.layers[0].inverse_g.value(), 1);
  EXPECT_FALSE(profile.layers[0].inverse_a.has_value());
  expect_seconds(profile.steps[0][runtime::RankProfile::kInverses], 4);
}

TEST(LayerProfile, ClippingIsSpreadByTheSizeOfGradients) {
  // Own elements: 2·1 and 2·3, so a quarter and three quarters.
  const auto step = timed_passes();
  step->parts.push_back(
      step_event(runtime::StepPart::kPrecondition, {{{0, FactorSide::kA}}}, 13, 15));
  step->parts.push_back(step_event(runtime::StepPart::kClip, {}, 15, 19));
  const runtime::RankProfile profile = runtime::profile_of({step}, two_specs(), kOrder);
  expect_seconds(profile.layers[1].precondition.value(), 2 + 3);
  EXPECT_FALSE(profile.layers[0].precondition.has_value());
  expect_seconds(profile.steps[0][runtime::RankProfile::kPreconditioning], 2 + 4);
}

}  // namespace
}  // namespace spdkfac
