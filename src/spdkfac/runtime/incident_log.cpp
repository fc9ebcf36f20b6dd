// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/incident_log.h"

#include <numeric>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "spdkfac/base/error.h"
#include "spdkfac/kfac/graphed_work.h"

namespace spdkfac {

void IncidentLog::note(const at::Tensor& flag, Describe describe, Count count) {
  at::Tensor values = flag.reshape({-1}).to(at::kInt);
  if (values.is_cpu()) {
    look_at(values.const_data_ptr<std::int32_t>(), values.numel(), describe, count);
  } else {
    const std::int64_t size = values.numel();
    notes_.push_back({std::move(values), size, std::move(describe), std::move(count)});
  }
}

void IncidentLog::end_step() {
  if (!notes_.empty()) {
    std::vector<Note> notes = std::exchange(notes_, {});
    std::vector<at::Tensor> flags;
    for (Note& entry : notes) flags.push_back(std::exchange(entry.flag, {}));
    const at::Tensor all = at::cat(flags);
    if (is_recording(all.device())) return record(all, std::move(notes));
    send(all, std::move(notes));
  }
  while (!pending_.empty() && pending_.front().arrived.query()) {
    const Pending& first = pending_.front();
    read(first.values, first.notes);
    pending_.pop_front();
  }
}

void IncidentLog::send(const at::Tensor& flags, std::vector<Note> notes) {
  at::Tensor values =
      at::empty(flags.sizes(), flags.options().device(at::kCPU).pinned_memory(true));
  values.copy_(flags, /*non_blocking=*/true);
  c10::Event arrived(flags.device().type());
  arrived.record(c10::impl::VirtualGuardImpl(flags.device().type()).getStream(flags.device()));
  pending_.push_back({std::move(values), std::move(notes), std::move(arrived)});
  at::Tensor& cleared = cleared_[flags.numel()];
  if (!cleared.defined()) cleared = at::zeros_like(flags);
}

// Clearing the sums here would become part of the recording.
void IncidentLog::record(const at::Tensor& flags, std::vector<Note> notes) {
  const auto found = cleared_.find(flags.numel());
  if (found == cleared_.end()) {
    throw ConfigError(
        "kfac: a step is recorded of a kind that was not run before; run each kind of step once, "
        "then record it");
  }
  at::Tensor sums = found->second;
  cleared_.erase(found);
  sums.add_(flags);
  recorded_.push_back({sums, at::zeros(sums.sizes(), at::kInt), std::move(notes)});
}

void IncidentLog::finish() {
  for (; !pending_.empty(); pending_.pop_front()) {
    const Pending& first = pending_.front();
    first.arrived.synchronize();
    read(first.values, first.notes);
  }
  for (Recorded& step : recorded_) {
    const at::Tensor sums = step.sums.cpu();
    read(sums - step.seen, step.notes);
    step.seen = sums;
  }
}

void IncidentLog::read(const at::Tensor& values, const std::vector<Note>& notes) {
  const auto* value = values.const_data_ptr<std::int32_t>();
  for (const Note& note : notes) {
    look_at(value, note.size, note.describe, note.count);
    value += note.size;
  }
}

void IncidentLog::look_at(const std::int32_t* values, std::int64_t size, const Describe& describe,
                          const Count& count) {
  const std::int64_t times = std::accumulate(values, values + size, std::int64_t{0});
  if (times == 0) return;
  count(times);
  if (!logger_) return;
  for (std::int64_t index = 0; index < size; ++index) {
    if (values[index] == 0) continue;
    const Message message = describe(static_cast<std::size_t>(index));
    if (logged_.insert(message.place).second) logger_->warn(message.text);
  }
}

}  // namespace spdkfac
