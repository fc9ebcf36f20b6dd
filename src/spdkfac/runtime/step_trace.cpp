// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/step_trace.h"

#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

namespace spdkfac {

StepTrace::Mark StepTrace::mark(at::Device device) {
  Mark result{.time = Clock::now(), .event = std::nullopt};
  if (!device.is_cpu()) {
    result.event.emplace(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    result.event->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  return result;
}

Seconds StepTrace::between(const Mark& begin, const Mark& end) {
  if (begin.event && end.event) {
    end.event->synchronize();
    return Seconds(begin.event->elapsedTime(*end.event) * 1e-3);
  }
  return Seconds(std::chrono::duration<double>(end.time - begin.time).count());
}

void StepTrace::next_step(at::Device device) {
  if (!enabled_) return;
  if (current_.begin) {
    current_.end = mark(device);
    finished_ = std::exchange(current_, Step{});
  }
  current_.begin = mark(device);
}

void StepTrace::restart(at::Device device) {
  if (!enabled_) return;
  current_ = Step{};
  current_.begin = mark(device);
}

StepTrace::Span::Span(StepTrace& trace, Category category, const char* what,
                      const std::string& name, at::Device device)
    : trace_(trace.enabled_ && trace.current_.begin ? &trace : nullptr), device_(device) {
  if (!trace_) return;
  trace_->current_.events.push_back(
      {category, name.empty() ? std::string(what) : fmt::format("{} {}", what, name), mark(device),
       Mark{}});
}

StepTrace::Span::~Span() {
  if (trace_ && !trace_->current_.events.empty())
    trace_->current_.events.back().end = mark(device_);
}

Trace StepTrace::trace() const {
  Trace trace(1);
  if (!finished_.begin || !finished_.end) return trace;
  const std::uint32_t between_name = trace.intern("forward, backward, update");
  Seconds now(0);
  const auto fill = [&](Seconds until) {
    if (now < until) {
      trace.add({.rank = 0, .name = between_name, .start = now, .duration = until - now});
    }
  };
  for (const Event& event : finished_.events) {
    const Seconds start = between(*finished_.begin, event.begin);
    const Seconds duration = between(event.begin, event.end);
    fill(start);
    trace.add({.rank = 0,
               .name = trace.intern(event.name),
               .lane = Lane::kCompute,
               .category = event.category,
               .start = start,
               .duration = duration});
    now = start + duration;
  }
  fill(between(*finished_.begin, *finished_.end));
  return trace;
}

}  // namespace spdkfac
