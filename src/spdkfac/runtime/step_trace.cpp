// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/step_trace.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace spdkfac {

void StepTrace::next_step(at::Device device) {
  if (!enabled_) return;
  if (current_.begin) {
    current_.end = TimeMark::now(device);
    finished_ = std::exchange(current_, Step{});
  }
  current_.begin = TimeMark::now(device);
}

void StepTrace::restart(at::Device device) {
  if (!enabled_) return;
  current_ = Step{};
  current_.begin = TimeMark::now(device);
}

void StepTrace::passes_end(at::Device device) {
  if (enabled_ && current_.begin) current_.passes_end = TimeMark::now(device);
}

StepTrace::Span::Span(StepTrace& trace, Category category, const char* what,
                      const std::string& name, at::Device device)
    : trace_(trace.enabled_ && trace.current_.begin ? &trace : nullptr), device_(device) {
  if (!trace_) return;
  trace_->current_.events.push_back(
      {category, name.empty() ? std::string(what) : fmt::format("{} {}", what, name),
       TimeMark::now(device), TimeMark{}});
}

void StepTrace::Span::set_idle() {
  if (trace_) trace_->current_.events.back().idle = true;
}

StepTrace::Span::~Span() {
  if (trace_ && !trace_->current_.events.empty())
    trace_->current_.events.back().end = TimeMark::now(device_);
}

void StepTrace::add_channel(Category category, const std::string& name, std::int64_t elements,
                            const std::optional<OperationSpan>& span) {
  if (enabled_ && span && current_.begin) {
    current_.channel.push_back({category, name, elements, *span});
  }
}

// In order of time; those that share the channel for a while are cut, for a lane holds one at a
// time.
void StepTrace::add_channel_events(Trace& trace) const {
  std::vector<ChannelEvent> channel = finished_.channel;
  std::stable_sort(channel.begin(), channel.end(),
                   [](const ChannelEvent& left, const ChannelEvent& right) {
                     return left.span.begin < right.span.begin;
                   });
  const auto seconds = [&](std::chrono::steady_clock::time_point time) {
    return Seconds(std::chrono::duration<double>(time - finished_.begin->time).count());
  };
  Seconds now(0);
  for (const ChannelEvent& event : channel) {
    const Seconds start = std::max(now, seconds(event.span.begin));
    const Seconds end = std::max(start, seconds(event.span.end));
    trace.add({.rank = 0,
               .name = trace.intern(event.name),
               .lane = Lane::kChannel,
               .category = event.category,
               .start = start,
               .duration = end - start,
               .elements = event.elements});
    now = end;
  }
}

Trace StepTrace::trace() const {
  Trace trace(1);
  if (!finished_.begin || !finished_.end) return trace;
  const Seconds end = TimeMark::between(*finished_.begin, *finished_.end);
  const Seconds passes_end =
      finished_.passes_end ? TimeMark::between(*finished_.begin, *finished_.passes_end) : end;
  Seconds now(0);
  const auto fill = [&](Seconds until, const char* name, Category category) {
    if (until <= now) return;
    trace.add({.rank = 0,
               .name = trace.intern(name),
               .lane = Lane::kCompute,
               .category = category,
               .start = now,
               .duration = until - now});
    now = until;
  };
  const auto fill_passes = [&](Seconds until) {
    fill(until, "forward, backward, update", Category::kForwardBackward);
  };
  for (const Event& event : finished_.events) {
    const Seconds start = TimeMark::between(*finished_.begin, event.begin);
    const Seconds duration = TimeMark::between(event.begin, event.end);
    if (event.idle) {  // before it gradients may have been copied
      fill_passes(start);
      now = start + duration;
      continue;
    }
    fill_passes(std::min(start, passes_end));
    fill(start, "prepare", event.category);
    now = start + duration;
    trace.add({.rank = 0,
               .name = trace.intern(event.name),
               .lane = Lane::kCompute,
               .category = event.category,
               .start = start,
               .duration = duration});
  }
  fill_passes(end);
  add_channel_events(trace);
  return trace;
}

}  // namespace spdkfac
