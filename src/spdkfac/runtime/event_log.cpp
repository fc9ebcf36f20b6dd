// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/event_log.h"

#include <numeric>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace spdkfac {

void EventLog::note(const at::Tensor& flag, Describe describe, Count count) {
  at::Tensor values = flag.reshape({-1}).to(at::kInt);
  if (values.is_cpu()) {
    look_at(values.const_data_ptr<std::int32_t>(), values.numel(), describe, count);
  } else {
    notes_.push_back({std::move(values), std::move(describe), std::move(count)});
  }
}

void EventLog::end_step() {
  if (!notes_.empty()) {
    c10::Event arrived(notes_.front().flag.device().type());
    Pending pending{.values = {},
                    .notes = std::exchange(notes_, {}),
                    .sizes = {},
                    .arrived = std::move(arrived)};
    std::vector<at::Tensor> flags;
    for (Note& entry : pending.notes) {
      pending.sizes.push_back(entry.flag.numel());
      flags.push_back(std::exchange(entry.flag, {}));
    }
    const at::Tensor all = at::cat(flags);
    pending.values = at::empty(all.sizes(), all.options().device(at::kCPU).pinned_memory(true));
    pending.values.copy_(all, /*non_blocking=*/true);
    pending.arrived.record(
        c10::impl::VirtualGuardImpl(all.device().type()).getStream(all.device()));
    pending_.push_back(std::move(pending));
  }
  while (!pending_.empty() && pending_.front().arrived.query()) {
    read(pending_.front());
    pending_.pop_front();
  }
}

void EventLog::finish() {
  for (; !pending_.empty(); pending_.pop_front()) {
    pending_.front().arrived.synchronize();
    read(pending_.front());
  }
}

void EventLog::read(const Pending& pending) {
  const auto* value = pending.values.const_data_ptr<std::int32_t>();
  for (std::size_t index = 0; index < pending.notes.size(); ++index) {
    const Note& entry = pending.notes[index];
    look_at(value, pending.sizes[index], entry.describe, entry.count);
    value += pending.sizes[index];
  }
}

void EventLog::look_at(const std::int32_t* values, std::int64_t size, const Describe& describe,
                       const Count& count) {
  const std::int64_t times = std::accumulate(values, values + size, std::int64_t{0});
  if (times == 0) return;
  count(times);
  if (!logger_) return;
  for (std::int64_t index = 0; index < size; ++index) {
    if (values[index] == 0) continue;
    const Message message = describe(static_cast<std::size_t>(index));
    if (said_.insert(message.place).second) logger_->warn(message.text);
  }
}

}  // namespace spdkfac
