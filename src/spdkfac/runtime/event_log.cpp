// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/event_log.h"

#include <utility>

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace spdkfac {

void EventLog::note(const at::Tensor& flag, const std::string& place, std::string message,
                    Count count) {
  notes_.push_back({flag.reshape({-1}).to(at::kInt), place, std::move(message), std::move(count)});
}

void EventLog::end_step() {
  if (!notes_.empty()) {
    Pending pending{.values = {}, .notes = std::exchange(notes_, {}), .sizes = {}, .arrived = {}};
    std::vector<at::Tensor> flags;
    for (Note& entry : pending.notes) {
      pending.sizes.push_back(entry.flag.numel());
      flags.push_back(std::exchange(entry.flag, {}));
    }
    const at::Tensor all = at::cat(flags);
    if (all.is_cpu()) {
      pending.values = all;
    } else {
      pending.values = at::empty(all.sizes(), all.options().device(at::kCPU).pinned_memory(true));
      pending.values.copy_(all, /*non_blocking=*/true);
      pending.arrived.emplace(all.device().type());
      pending.arrived->record(
          c10::impl::VirtualGuardImpl(all.device().type()).getStream(all.device()));
    }
    pending_.push_back(std::move(pending));
  }
  while (!pending_.empty() && (!pending_.front().arrived || pending_.front().arrived->query())) {
    read(pending_.front());
    pending_.pop_front();
  }
}

void EventLog::finish() {
  for (; !pending_.empty(); pending_.pop_front()) {
    if (pending_.front().arrived) pending_.front().arrived->synchronize();
    read(pending_.front());
  }
}

void EventLog::read(const Pending& pending) {
  const auto* value = pending.values.const_data_ptr<std::int32_t>();
  for (std::size_t index = 0; index < pending.notes.size(); ++index) {
    std::int64_t times = 0;
    for (std::int64_t i = 0; i < pending.sizes[index]; ++i) times += *value++;
    if (times == 0) continue;
    const Note& entry = pending.notes[index];
    entry.count(times);
    if (logger_ && said_.insert(entry.place).second) logger_->warn(entry.message);
  }
}

}  // namespace spdkfac
