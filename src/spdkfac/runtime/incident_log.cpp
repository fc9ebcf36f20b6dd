// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/incident_log.h"

#include <utility>

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "spdkfac/base/error.h"
#include "spdkfac/kfac/graphed_work.h"

namespace spdkfac::runtime {
namespace {

// Kinds of steps with equally many flags that have run and may be recorded.
constexpr std::size_t kKindsToRecord = 8;

// Appends the elements that are set.
void read(const std::int32_t* values, std::int64_t size,
          const std::shared_ptr<const IncidentNote>& note, std::vector<Incident>& incidents) {
  for (std::int64_t index = 0; index < size; ++index) {
    if (values[index] != 0) {
      incidents.push_back({note, static_cast<std::size_t>(index), values[index]});
    }
  }
}

template <class Notes>
void read_all(const at::Tensor& values, const Notes& notes, std::vector<Incident>& incidents) {
  const auto* value = values.const_data_ptr<std::int32_t>();
  for (const auto& note : notes) {
    read(value, note.size, note.what, incidents);
    value += note.size;
  }
}

}  // namespace

std::vector<Incident> IncidentLog::note(const at::Tensor& flag, IncidentNote note) {
  std::vector<Incident> incidents;
  at::Tensor values = flag.reshape({-1}).to(at::kInt);
  auto what = std::make_shared<const IncidentNote>(std::move(note));
  const std::int64_t size = values.numel();
  if (values.is_cpu()) {
    read(values.const_data_ptr<std::int32_t>(), size, what, incidents);
  } else {
    notes_.push_back({std::move(values), size, std::move(what)});
  }
  return incidents;
}

std::vector<Incident> IncidentLog::end_step() {
  std::vector<Incident> incidents;
  if (!notes_.empty()) {
    std::vector<Note> notes = std::exchange(notes_, {});
    std::vector<at::Tensor> flags;
    for (Note& entry : notes) flags.push_back(std::exchange(entry.flag, {}));
    const at::Tensor all = at::cat(flags);
    if (kfac::is_recording(all.device())) {
      record(all, std::move(notes));
      return incidents;
    }
    send(all, std::move(notes));
  }
  for (; !pending_.empty() && pending_.front().arrived.query(); pending_.pop_front()) {
    read_all(pending_.front().values, pending_.front().notes, incidents);
  }
  return incidents;
}

void IncidentLog::send(const at::Tensor& flags, std::vector<Note> notes) {
  at::Tensor values =
      at::empty(flags.sizes(), flags.options().device(at::kCPU).pinned_memory(true));
  values.copy_(flags, /*non_blocking=*/true);
  c10::Event arrived(flags.device().type());
  arrived.record(c10::impl::VirtualGuardImpl(flags.device().type()).getStream(flags.device()));
  pending_.push_back({std::move(values), std::move(notes), std::move(arrived)});
  std::vector<at::Tensor>& cleared = cleared_[flags.numel()];
  if (cleared.size() < kKindsToRecord) cleared.push_back(at::zeros_like(flags));
}

// Clearing the sums here would become part of the recording.
void IncidentLog::record(const at::Tensor& flags, std::vector<Note> notes) {
  std::vector<at::Tensor>& cleared = cleared_[flags.numel()];
  if (cleared.empty()) {
    throw ConfigError(
        "kfac: this kind of step cannot be recorded before it has run; run each kind of step once "
        "first");
  }
  at::Tensor sums = cleared.back();
  cleared.pop_back();
  sums.add_(flags);
  recorded_.push_back({sums, at::zeros(sums.sizes(), at::kInt), std::move(notes)});
}

std::vector<Incident> IncidentLog::finish() {
  std::vector<Incident> incidents;
  for (; !pending_.empty(); pending_.pop_front()) {
    const Pending& first = pending_.front();
    first.arrived.synchronize();
    read_all(first.values, first.notes, incidents);
  }
  for (Recorded& step : recorded_) {
    const at::Tensor sums = step.sums.cpu();
    read_all(sums - step.seen, step.notes, incidents);
    step.seen = sums;
  }
  return incidents;
}

}  // namespace spdkfac::runtime
