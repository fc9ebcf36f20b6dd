// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/layer_profile.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <ATen/ATen.h>

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
  preconditioned_[layer].push_back({std::move(begin), std::move(end)});
}

void LayerProfile::inverted(std::vector<Inverted> factors, TimeMark begin, TimeMark end) {
  inversions_.push_back({std::move(factors), {std::move(begin), std::move(end)}});
}

void LayerProfile::clipped(TimeMark begin, TimeMark end) {
  clipped_.push_back({std::move(begin), std::move(end)});
}

std::optional<Seconds> LayerProfile::mean(const std::vector<Span>& spans) {
  if (spans.empty()) return std::nullopt;
  Seconds total;
  for (const Span& span : spans) total += TimeMark::between(span.begin, span.end);
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
    const Seconds time = TimeMark::between(inversion.span.begin, inversion.span.end);
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

std::vector<LayerTimes> LayerProfile::times(const std::vector<LayerSpec>& specs,
                                            const std::vector<std::size_t>& order) const {
  std::vector<LayerTimes> by_layer(layers_);
  const auto with_factors = std::count_if(steps_.begin(), steps_.end(),
                                          [](const Step& step) { return !step.factors.empty(); });
  const double share = 1.0 / static_cast<double>(std::max<std::size_t>(1, steps_.size()));
  const double factor_share = 1.0 / static_cast<double>(std::max<std::ptrdiff_t>(1, with_factors));
  for (const Step& step : steps_) {
    for (std::size_t i = 0; i < step.visits.size(); ++i) {
      const Visit& visit = step.visits[i];
      LayerTimes& times = by_layer[visit.layer];
      if (visit.side == FactorSide::kA) {
        if (i > 0 && step.visits[i - 1].side == FactorSide::kA) {
          times.forward += TimeMark::between(step.visits[i - 1].end, visit.begin) * share;
        }
      } else {
        const TimeMark& next = i + 1 < step.visits.size() ? step.visits[i + 1].begin : step.end;
        times.backward += TimeMark::between(visit.end, next) * share;
      }
    }
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

std::vector<LayerTimes> means_of_ranks(const std::vector<LayerTimes>& mine,
                                       Communicator& communicator) {
  constexpr std::array kParts{&LayerTimes::forward, &LayerTimes::backward, &LayerTimes::factor_a,
                              &LayerTimes::factor_g};
  constexpr std::array kOptional{&LayerTimes::precondition, &LayerTimes::inverse_a,
                                 &LayerTimes::inverse_g};
  // What all measure, then what some do, with how many have.
  constexpr std::size_t kColumns = kParts.size() + 2 * kOptional.size();
  std::vector<double> sums(mine.size() * kColumns);
  for (std::size_t layer = 0; layer < mine.size(); ++layer) {
    double* next = &sums[layer * kColumns];
    for (const auto part : kParts) *next++ = (mine[layer].*part).value();
    for (const auto part : kOptional) {
      const std::optional<Seconds>& time = mine[layer].*part;
      *next++ = time.value_or(Seconds(0)).value();
      *next++ = time ? 1 : 0;
    }
  }
  const at::Tensor shared = at::from_blob(sums.data(), {static_cast<std::int64_t>(sums.size())},
                                          at::TensorOptions().dtype(at::kDouble));
  communicator.all_reduce_async(shared, "layer times").wait();
  std::vector<LayerTimes> result(mine.size());
  for (std::size_t layer = 0; layer < mine.size(); ++layer) {
    const double* next = &sums[layer * kColumns];
    for (const auto part : kParts) result[layer].*part = Seconds(*next++ / communicator.size());
    for (const auto part : kOptional) {
      const double sum = *next++;
      const double ranks = *next++;
      if (ranks > 0) result[layer].*part = Seconds(sum / ranks);
    }
  }
  return result;
}

}  // namespace spdkfac
