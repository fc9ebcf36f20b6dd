// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/layer_profile.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "spdkfac/base/check.h"
#include "spdkfac/base/median.h"
#include "spdkfac/comm/rank_values.h"

namespace spdkfac {

void LayerProfile::visit_begins(std::size_t layer, FactorSide side, c10::Device device) {
  current_.visits.push_back({layer, side, TimeMark::now(device), {}});
}

void LayerProfile::visit_ends(c10::Device device) {
  current_.visits.back().end = TimeMark::now(device);
}

void LayerProfile::factor_computed(std::size_t layer, FactorSide side, TimeMark begin,
                                   TimeMark end) {
  current_.factors.push_back({layer, side, std::move(begin), std::move(end)});
}

void LayerProfile::preconditioned(std::size_t layer, TimeMark begin, TimeMark end) {
  preconditioned_[layer].push_back(span(std::move(begin), std::move(end)));
}

void LayerProfile::inverted(std::vector<Inverted> factors, TimeMark begin, TimeMark end) {
  inversions_.push_back({std::move(factors), span(std::move(begin), std::move(end))});
}

void LayerProfile::clipped(TimeMark begin, TimeMark end) {
  clipped_.push_back(span(std::move(begin), std::move(end)));
}

LayerProfile::Span LayerProfile::span(TimeMark begin, TimeMark end) const {
  SPDKFAC_CHECK(!steps_.empty(), "a part of a step before its passes are over");
  return {steps_.size() - 1, std::move(begin), std::move(end)};
}

std::optional<Seconds> LayerProfile::mean(const std::vector<Span>& spans) {
  if (spans.empty()) return std::nullopt;
  Seconds total;
  for (const Span& span : spans) total += span.time();
  return total * (1.0 / static_cast<double>(spans.size()));
}

void LayerProfile::step_ends(c10::Device device) {
  current_.end = TimeMark::now(device);
  steps_.push_back(std::exchange(current_, Step{}));
}

void LayerProfile::add_inverses(std::vector<LayerTimes>& by_layer) const {
  struct Sum {
    Seconds time;
    double count = 0;
  };
  std::map<std::pair<std::size_t, FactorSide>, Sum> sums;
  for (const Inversion& inversion : inversions_) {
    const Seconds time = inversion.span.time();
    for (const Inverted& factor : inversion.factors) {
      Sum& sum = sums[{factor.layer, factor.side}];
      sum.time += time * factor.part;
      ++sum.count;
    }
  }
  for (const auto& [factor, sum] : sums) {
    LayerTimes& times = by_layer[factor.first];
    (factor.second == FactorSide::kA ? times.inverse_a : times.inverse_g) = sum.time / sum.count;
  }
}

template <class Visitor>
void LayerProfile::for_each_pass(const Step& step, const Visitor& visitor) {
  for (std::size_t i = 0; i < step.visits.size(); ++i) {
    const Visit& visit = step.visits[i];
    if (visit.side == FactorSide::kG) {
      const TimeMark& next = i + 1 < step.visits.size() ? step.visits[i + 1].begin : step.end;
      visitor(visit.layer, visit.side, TimeMark::between(visit.end, next));
    } else if (i > 0 && step.visits[i - 1].side == FactorSide::kA) {
      visitor(visit.layer, visit.side, TimeMark::between(step.visits[i - 1].end, visit.begin));
    }
  }
}

std::vector<LayerTimes> LayerProfile::times(const std::vector<LayerSpec>& specs,
                                            const std::vector<std::size_t>& order) const {
  std::vector<LayerTimes> by_layer(layers_);
  const auto with_factors = std::count_if(steps_.begin(), steps_.end(),
                                          [](const Step& step) { return !step.factors.empty(); });
  const double share = 1.0 / static_cast<double>(std::max<std::size_t>(1, steps_.size()));
  const double factor_share = 1.0 / static_cast<double>(std::max<std::ptrdiff_t>(1, with_factors));
  for (const Step& step : steps_) {
    for_each_pass(step, [&](std::size_t layer, FactorSide side, Seconds time) {
      LayerTimes& times = by_layer[layer];
      (side == FactorSide::kA ? times.forward : times.backward) += time * share;
    });
    for (const Visit& factor : step.factors) {
      LayerTimes& times = by_layer[factor.layer];
      (factor.side == FactorSide::kA ? times.factor_a : times.factor_g) +=
          TimeMark::between(factor.begin, factor.end) * factor_share;
    }
  }
  add_inverses(by_layer);
  std::vector<LayerTimes> result;
  Seconds measured;
  double flops = 0;
  for (std::size_t layer = 0; layer < specs.size(); ++layer) {
    result.push_back(by_layer[order[layer]]);
    if (layer == 0) continue;
    measured += result.back().forward;
    flops += specs[layer].flops->forward.value();
  }
  if (flops > 0) result.front().forward = measured * (specs[0].flops->forward.value() / flops);
  double elements = 0;
  for (const LayerSpec& spec : specs) elements += static_cast<double>(spec.own_elements());
  for (std::size_t layer = 0; layer < specs.size(); ++layer) {
    result[layer].precondition = mean(preconditioned_[order[layer]]);
    if (!result[layer].precondition) continue;
    const double part = static_cast<double>(specs[layer].own_elements()) / elements;
    *result[layer].precondition += mean(clipped_).value_or(Seconds(0)) * part;
  }
  return result;
}

RankProfile LayerProfile::result(const std::vector<LayerSpec>& specs,
                                 const std::vector<std::size_t>& order) const {
  RankProfile profile{.layers = times(specs, order), .steps = {}};
  for (const Step& step : steps_) {
    Seconds& passes = profile.steps.emplace_back()[RankProfile::kPasses];
    for_each_pass(step, [&](std::size_t, FactorSide, Seconds time) { passes += time; });
  }
  for (const Inversion& inversion : inversions_) {
    profile.steps[inversion.span.step][RankProfile::kInverses] += inversion.span.time();
  }
  const auto add = [&](const std::vector<Span>& spans) {
    for (const Span& span : spans) {
      profile.steps[span.step][RankProfile::kPreconditioning] += span.time();
    }
  };
  for (const std::vector<Span>& spans : preconditioned_) add(spans);
  add(clipped_);
  return profile;
}

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
  for (const std::vector<double>& of_rank : numbers_of_ranks(communicator, device, numbers)) {
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

}  // namespace spdkfac
