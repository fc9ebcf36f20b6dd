// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/layer_profile.h"

#include <algorithm>
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

void LayerProfile::clipped(TimeMark begin, TimeMark end) {
  clipped_.push_back({std::move(begin), std::move(end)});
}

Seconds LayerProfile::mean(const std::vector<Span>& spans) {
  Seconds total;
  for (const Span& span : spans) total += TimeMark::between(span.begin, span.end);
  return total * (1.0 / static_cast<double>(std::max<std::size_t>(1, spans.size())));
}

void LayerProfile::step_ends(c10::Device device) {
  current_.end = TimeMark::now(device);
  steps_.push_back(std::exchange(current_, Step{}));
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
    const std::vector<Span>& spans = preconditioned_[order[layer]];
    if (spans.empty()) continue;
    const double part = static_cast<double>(specs[layer].own_elements()) / elements;
    result[layer].precondition = mean(spans) + mean(clipped_) * part;
  }
  return result;
}

std::vector<LayerTimes> means_of_ranks(const std::vector<LayerTimes>& mine,
                                       Communicator& communicator) {
  // Four parts, preconditioning, and how many ranks measured that.
  at::Tensor seconds = at::zeros({static_cast<std::int64_t>(mine.size()), 6}, at::kDouble);
  auto rows = seconds.accessor<double, 2>();
  for (std::int64_t layer = 0; layer < seconds.size(0); ++layer) {
    const LayerTimes& times = mine[static_cast<std::size_t>(layer)];
    rows[layer][0] = times.forward.value();
    rows[layer][1] = times.backward.value();
    rows[layer][2] = times.factor_a.value();
    rows[layer][3] = times.factor_g.value();
    if (!times.precondition) continue;
    rows[layer][4] = times.precondition->value();
    rows[layer][5] = 1;
  }
  communicator.all_reduce_async(seconds, "layer times").wait();
  seconds.div_(communicator.size());
  std::vector<LayerTimes> result;
  for (std::int64_t layer = 0; layer < seconds.size(0); ++layer) {
    result.push_back({.forward = Seconds(rows[layer][0]),
                      .backward = Seconds(rows[layer][1]),
                      .factor_a = Seconds(rows[layer][2]),
                      .factor_g = Seconds(rows[layer][3])});
    if (rows[layer][5] > 0) {
      result.back().precondition = Seconds(rows[layer][4] / rows[layer][5]);
    }
  }
  return result;
}

}  // namespace spdkfac
