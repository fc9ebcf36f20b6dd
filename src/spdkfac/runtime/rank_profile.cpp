// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/rank_profile.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "spdkfac/base/median.h"
#include "spdkfac/comm/rank_values.h"

namespace spdkfac::runtime {
namespace {

constexpr std::array kAlways{&LayerTimes::forward, &LayerTimes::backward, &LayerTimes::factor_a,
                             &LayerTimes::factor_g};
constexpr std::array kPartly{&LayerTimes::precondition, &LayerTimes::inverse_a,
                             &LayerTimes::inverse_g};
constexpr double kNotMeasured = -1;

// What the parts of a step take a rank by the means, without the first forward pass.
std::array<Seconds, RankProfile::kParts> expected(const std::vector<LayerTimes>& means,
                                                  const RankProfile& rank) {
  std::array<Seconds, RankProfile::kParts> times;
  for (std::size_t layer = 0; layer < means.size(); ++layer) {
    const LayerTimes& mine = rank.layers[layer];
    if (layer > 0) times[RankProfile::kPasses] += means[layer].forward;
    times[RankProfile::kPasses] += means[layer].backward;
    if (mine.inverse_a) times[RankProfile::kInverses] += *means[layer].inverse_a;
    if (mine.inverse_g) times[RankProfile::kInverses] += *means[layer].inverse_g;
    if (mine.precondition) times[RankProfile::kPreconditioning] += *means[layer].precondition;
  }
  return times;
}

using StepRatios = std::array<std::optional<double>, RankProfile::kParts>;

// How many times as long as by the means the parts of each step took the rank, where it did them.
std::vector<StepRatios> ratios(const std::vector<LayerTimes>& means, const RankProfile& rank) {
  const auto usual = expected(means, rank);
  std::vector<StepRatios> result;
  for (const auto& step : rank.steps) {
    StepRatios& of_step = result.emplace_back();
    for (std::size_t part = 0; part < RankProfile::kParts; ++part) {
      if (usual[part] > Seconds(0) && step[part] > Seconds(0)) {
        of_step[part] = step[part] / usual[part];
      }
    }
  }
  return result;
}

// The same until the last rank is through: the median of the steps that have the part.
double slowest_rank(const std::vector<std::vector<StepRatios>>& ranks, RankProfile::Part part) {
  std::vector<double> slowest;
  for (std::size_t step = 0; step < ranks.front().size(); ++step) {
    double most = 0;
    for (const auto& rank : ranks) most = std::max(most, rank[step][part].value_or(0));
    if (most > 0) slowest.push_back(most);
  }
  if (slowest.empty()) return 1;
  return median(std::move(slowest));
}

}  // namespace

std::vector<RankProfile> profiles_of_ranks(const RankProfile& mine, Communicator& communicator,
                                           c10::Device device) {
  std::vector<double> numbers;
  for (const LayerTimes& layer : mine.layers) {
    for (const auto part : kAlways) numbers.push_back((layer.*part).value());
    for (const auto part : kPartly) {
      numbers.push_back((layer.*part).value_or(Seconds(kNotMeasured)).value());
    }
  }
  for (const auto& step : mine.steps) {
    for (const Seconds time : step) numbers.push_back(time.value());
  }
  std::vector<RankProfile> ranks;
  for (const std::vector<double>& of_rank : comm::numbers_of_ranks(communicator, device, numbers)) {
    RankProfile rank = mine;
    auto next = of_rank.begin();
    for (LayerTimes& layer : rank.layers) {
      for (const auto part : kAlways) layer.*part = Seconds(*next++);
      for (const auto part : kPartly) {
        const double time = *next++;
        layer.*part = time < 0 ? std::nullopt : std::optional(Seconds(time));
      }
    }
    for (auto& step : rank.steps) {
      for (Seconds& time : step) time = Seconds(*next++);
    }
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

std::vector<LayerTimes> mean_times(const std::vector<RankProfile>& ranks) {
  std::vector<LayerTimes> means(ranks.front().layers.size());
  for (std::size_t layer = 0; layer < means.size(); ++layer) {
    for (const auto part : kAlways) {
      for (const RankProfile& rank : ranks) means[layer].*part += rank.layers[layer].*part;
      means[layer].*part = means[layer].*part / static_cast<double>(ranks.size());
    }
    for (const auto part : kPartly) {
      Seconds sum;
      double count = 0;
      for (const RankProfile& rank : ranks) {
        if (!(rank.layers[layer].*part)) continue;
        sum += *(rank.layers[layer].*part);
        ++count;
      }
      if (count > 0) means[layer].*part = sum / count;
    }
  }
  return means;
}

std::vector<std::vector<Slowness>> slowness_of_steps(const std::vector<RankProfile>& ranks) {
  std::vector<std::vector<Slowness>> steps(ranks.front().steps.size());
  const std::vector<LayerTimes> means = mean_times(ranks);
  for (const RankProfile& rank : ranks) {
    const std::vector<StepRatios> of_rank = ratios(means, rank);
    for (std::size_t step = 0; step < steps.size(); ++step) {
      const StepRatios& parts = of_rank[step];
      steps[step].push_back({.passes = parts[RankProfile::kPasses].value_or(1),
                             .inverses = parts[RankProfile::kInverses].value_or(1),
                             .preconditioning = parts[RankProfile::kPreconditioning].value_or(1)});
    }
  }
  return steps;
}

std::vector<LayerTimes> joined_times(const std::vector<RankProfile>& ranks) {
  std::vector<LayerTimes> times = mean_times(ranks);
  std::vector<std::vector<StepRatios>> by_rank;
  for (const RankProfile& rank : ranks) by_rank.push_back(ratios(times, rank));
  const double passes = slowest_rank(by_rank, RankProfile::kPasses);
  const double inverses = slowest_rank(by_rank, RankProfile::kInverses);
  const double preconditioning = slowest_rank(by_rank, RankProfile::kPreconditioning);
  const auto scale = [](std::optional<Seconds>& time, double factor) {
    if (time) time = *time * factor;
  };
  for (LayerTimes& layer : times) {
    for (const auto part : kAlways) layer.*part = layer.*part * passes;
    scale(layer.inverse_a, inverses);
    scale(layer.inverse_g, inverses);
    scale(layer.precondition, preconditioning);
  }
  return times;
}

}  // namespace spdkfac::runtime
