// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/refreshes.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "spdkfac/kfac/drift.h"

namespace spdkfac::runtime {

Refreshes::Refreshes(const KfacOptions& options, FactorBank& bank, Residence& residence,
                     bool second_order)
    : options_(options),
      bank_(bank),
      residence_(residence),
      second_order_(second_order),
      schedule_(options.intervals(), options.interval) {}

void Refreshes::reschedule() {
  schedule_ = plan::RefreshSchedule(options_.intervals(), options_.interval);
}

bool Refreshes::is_due(const LayerState& layer, std::int64_t step) const {
  const RefreshRecord& record = layer.refresh;
  if (record.renewed < 0 || record.change > options_.refresh_change) return true;
  return static_cast<double>(step) - record.renewed >=
         static_cast<double>(options_.inverse_interval);
}

StepWork Refreshes::work(std::int64_t step) const {
  if (!second_order_) return {.factors = false, .inverses = true, .step = step};
  const plan::RefreshSchedule::Due due = schedule_.at(step);
  StepWork work{.factors = due.factors, .inverses = due.inverses, .step = step};
  if (adapts()) {
    if (due.factors) work.renewed = renewed_when_due(step);
  } else if (options_.spread_refreshes && due.factors && step > 0) {
    work.renewed = renewed_in_part(schedule_.part(step));
  } else {
    return work;
  }
  work.inverses = std::find(work.renewed.begin(), work.renewed.end(), true) != work.renewed.end();
  return work;
}

std::vector<bool> Refreshes::renewed_when_due(std::int64_t step) const {
  std::vector<bool> renewed;
  for (std::size_t layer = 0; layer < bank_.size(); ++layer) {
    renewed.push_back(is_due(bank_.state(layer), step));
  }
  return renewed;
}

std::vector<bool> Refreshes::renewed_in_part(const plan::RefreshPart& part) const {
  if (parts_ != part.of) {
    std::vector<plan::LayerShapes> shapes;
    for (std::size_t layer = 0; layer < bank_.size(); ++layer) {
      const LayerState& state = bank_.state(layer);
      shapes.push_back({state.shape(FactorSide::kA), state.shape(FactorSide::kG)});
    }
    part_of_layer_ = plan::refresh_parts(shapes, part.of);
    parts_ = part.of;
  }
  std::vector<bool> renewed;
  for (const int own : part_of_layer_) renewed.push_back(own == part.index);
  return renewed;
}

void Refreshes::ran(std::int64_t step, const StepWork& work) {
  if (!adapts() || !second_order_) return;
  settle();
  for (std::size_t layer = 0; layer < bank_.size(); ++layer) {
    RefreshRecord& record = bank_.state(layer).refresh;
    if (const double came = std::exchange(record.coming, -1); came >= 0) record.change = came;
    if (work.inverses && work.renews(layer)) {
      record.renewed = static_cast<double>(step);
      record.change = 0;
    }
  }
  if (work.factors) pending_ = measure();
}

Refreshes::Measurement Refreshes::measure() const {
  const int rank = residence_.communicator().rank();
  std::vector<at::Tensor> averages;
  std::vector<at::Tensor> diagonals;
  std::vector<std::int64_t> places;  // in the message
  for (std::size_t layer = 0; layer < bank_.size(); ++layer) {
    for (const FactorSide side : {FactorSide::kA, FactorSide::kG}) {
      const FactorId id{layer, side};
      if (!bank_.state(layer).ready() || residence_.of(id).average.value_or(0) != rank) continue;
      const FactorState& factor = bank_.state(layer).factor(side);
      if (!factor.average) continue;
      averages.push_back(factor.average->mean());
      diagonals.push_back(factor.inverted);
      places.push_back(static_cast<std::int64_t>(2 * layer) + (side == FactorSide::kG ? 1 : 0));
    }
  }
  const at::Device device = bank_.state(0).layer().weight.device();
  at::Tensor all = at::zeros({static_cast<std::int64_t>(2 * bank_.size())},
                             at::TensorOptions(at::kDouble).device(device));
  if (!averages.empty()) {
    const at::Tensor changes = kfac::relative_changes(averages, diagonals);
    if (changes.numel() == all.numel()) {
      all = changes;  // in the order of layers
    } else {
      const std::vector<at::Tensor> values = changes.unbind();
      for (std::size_t i = 0; i < places.size(); ++i) all[places[i]].copy_(values[i]);
    }
  }
  Measurement result{all, residence_.communicator().all_reduce_async(all, "how far factors moved"),
                     std::nullopt};
  if (device.is_cpu()) return result;
  result.work.wait();  // the stream does
  result.values = at::empty(all.sizes(), all.options().device(at::kCPU).pinned_memory(true));
  result.values.copy_(all, /*non_blocking=*/true);
  result.arrived.emplace(device.type());
  result.arrived->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return result;
}

void Refreshes::settle() {
  if (!pending_) return;
  pending_->work.wait();
  if (pending_->arrived) pending_->arrived->synchronize();
  const double* value = pending_->values.const_data_ptr<double>();
  for (std::size_t layer = 0; layer < bank_.size(); ++layer, value += 2) {
    bank_.state(layer).refresh.coming = std::max(value[0], value[1]);
  }
  pending_.reset();
}

}  // namespace spdkfac::runtime
