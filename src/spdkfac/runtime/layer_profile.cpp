// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/layer_profile.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "spdkfac/base/check.h"

namespace spdkfac::runtime {
namespace {

Seconds time_of(const StepEvent& event) { return TimeMark::between(event.begin, event.end); }

struct Mean {
  Seconds time;
  double count = 0;

  void add(Seconds one) {
    time += one;
    ++count;
  }
  std::optional<Seconds> value() const {
    return count > 0 ? std::optional(time / count) : std::nullopt;
  }
};

// What the steps took in all, by tracked layer.
struct Sums {
  std::map<std::size_t, LayerTimes> layers;  // passes and factors, over all steps
  std::map<FactorId, Mean> inverses;
  std::map<std::size_t, Mean> precondition;
  Mean clip;
  int steps_with_factors = 0;
};

// Adds each pass through a layer in the step; returns what they took together.
Seconds add_passes(const StepEvents& step, Sums& sums) {
  SPDKFAC_CHECK(step.passes_end.has_value(), "a timed step whose passes are not over");
  std::vector<const StepEvent*> visits;
  for (const StepEvent& event : step.parts) {
    if (event.part == StepPart::kVisit) visits.push_back(&event);
  }
  Seconds all;
  const auto side = [&](std::size_t i) { return visits[i]->shares.front().factor.side; };
  for (std::size_t i = 0; i < visits.size(); ++i) {
    LayerTimes& times = sums.layers[visits[i]->shares.front().factor.layer];
    if (side(i) == FactorSide::kG) {
      const TimeMark& next = i + 1 < visits.size() ? visits[i + 1]->begin : *step.passes_end;
      const Seconds time = TimeMark::between(visits[i]->end, next);
      times.backward += time;
      all += time;
    } else if (i > 0 && side(i - 1) == FactorSide::kA) {
      const Seconds time = TimeMark::between(visits[i - 1]->end, visits[i]->begin);
      times.forward += time;
      all += time;
    }
  }
  return all;
}

// Adds what was computed in the step; returns the times of its parts.
std::array<Seconds, RankProfile::kParts> add_step(const StepEvents& step, Sums& sums) {
  std::array<Seconds, RankProfile::kParts> parts;
  parts[RankProfile::kPasses] = add_passes(step, sums);
  bool factors = false;
  for (const StepEvent& event : step.parts) {
    if (event.part == StepPart::kClip) {
      sums.clip.add(time_of(event));
      parts[RankProfile::kPreconditioning] += time_of(event);
    }
    if (event.shares.empty() || event.part == StepPart::kVisit) continue;
    const Seconds time = time_of(event);
    const FactorId first = event.shares.front().factor;
    switch (event.part) {
      case StepPart::kFactor:
      case StepPart::kPack: {
        LayerTimes& times = sums.layers[first.layer];
        (first.side == FactorSide::kA ? times.factor_a : times.factor_g) += time;
        factors = true;
        break;
      }
      case StepPart::kInverse:
        for (const auto& [factor, part] : event.shares) sums.inverses[factor].add(time * part);
        parts[RankProfile::kInverses] += time;
        break;
      case StepPart::kPrecondition:
        sums.precondition[first.layer].add(time);
        parts[RankProfile::kPreconditioning] += time;
        break;
      default:
        break;
    }
  }
  if (factors) ++sums.steps_with_factors;
  return parts;
}

// The mean of one step. Passes are of every step, factors of those that computed them.
LayerTimes mean_of(const Sums& sums, std::size_t layer, std::size_t steps) {
  const double share = 1.0 / static_cast<double>(std::max<std::size_t>(1, steps));
  const double factor_share = 1.0 / std::max(1, sums.steps_with_factors);
  LayerTimes times;
  if (const auto found = sums.layers.find(layer); found != sums.layers.end()) times = found->second;
  times.forward = times.forward * share;
  times.backward = times.backward * share;
  times.factor_a = times.factor_a * factor_share;
  times.factor_g = times.factor_g * factor_share;
  const auto inverse = [&](FactorSide side) {
    const auto found = sums.inverses.find({layer, side});
    return found == sums.inverses.end() ? std::nullopt : found->second.value();
  };
  times.inverse_a = inverse(FactorSide::kA);
  times.inverse_g = inverse(FactorSide::kG);
  if (const auto found = sums.precondition.find(layer); found != sums.precondition.end()) {
    times.precondition = found->second.value();
  }
  return times;
}

void set_first_forward(const std::vector<LayerSpec>& specs, std::vector<LayerTimes>& times) {
  Seconds measured;
  double flops = 0;
  for (std::size_t layer = 1; layer < specs.size(); ++layer) {
    measured += times[layer].forward;
    flops += specs[layer].flops->forward.value();
  }
  if (flops > 0) times.front().forward = measured * (specs[0].flops->forward.value() / flops);
}

void spread_clipping(const std::vector<LayerSpec>& specs, Seconds clip,
                     std::vector<LayerTimes>& times) {
  double elements = 0;
  for (const LayerSpec& spec : specs) elements += static_cast<double>(spec.own_elements());
  for (std::size_t layer = 0; layer < specs.size(); ++layer) {
    if (!times[layer].precondition) continue;
    *times[layer].precondition +=
        clip * (static_cast<double>(specs[layer].own_elements()) / elements);
  }
}

}  // namespace

RankProfile profile_of(const RecordedEvents& steps, const std::vector<LayerSpec>& specs,
                       const std::vector<std::size_t>& order) {
  Sums sums;
  RankProfile profile;
  for (const auto& step : steps) profile.steps.push_back(add_step(*step, sums));
  for (std::size_t layer = 0; layer < specs.size(); ++layer) {
    profile.layers.push_back(mean_of(sums, order[layer], steps.size()));
  }
  if (specs.empty()) return profile;
  set_first_forward(specs, profile.layers);
  spread_clipping(specs, sums.clip.value().value_or(Seconds(0)), profile.layers);
  return profile;
}

}  // namespace spdkfac::runtime
