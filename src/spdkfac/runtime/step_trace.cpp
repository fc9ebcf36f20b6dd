// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/step_trace.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

namespace spdkfac::runtime {
namespace {

// In order of time; those that share the channel for a while are cut, for a lane holds one at a
// time. Back ends that do not measure their operations add none.
void add_messages(const StepEvents& step, Trace& trace) {
  std::vector<std::pair<OperationSpan, const MessageEvent*>> channel;
  for (const MessageEvent& message : step.messages) {
    if (const auto span = message.work.span()) channel.emplace_back(*span, &message);
  }
  std::stable_sort(channel.begin(), channel.end(), [](const auto& left, const auto& right) {
    return left.first.begin < right.first.begin;
  });
  const auto seconds = [&](std::chrono::steady_clock::time_point time) {
    return Seconds(std::chrono::duration<double>(time - step.begin.time).count());
  };
  Seconds now(0);
  for (const auto& [span, message] : channel) {
    const Seconds start = std::max(now, seconds(span.begin));
    const Seconds end = std::max(start, seconds(span.end));
    trace.add({.rank = 0,
               .name = trace.intern(message->name),
               .lane = Lane::kChannel,
               .category = message->category,
               .start = start,
               .duration = end - start,
               .elements = message->elements});
    now = end;
  }
}

}  // namespace

Category category_of(StepPart part) {
  switch (part) {
    case StepPart::kFactor:
    case StepPart::kPack:
    case StepPart::kAverage:
      return Category::kFactorComp;
    case StepPart::kInverse:
    case StepPart::kUnpack:
      return Category::kInverseComp;
    case StepPart::kPrecondition:
    case StepPart::kClip:
      return Category::kPrecondition;
    case StepPart::kVisit:
    case StepPart::kWait:
      return Category::kForwardBackward;
  }
  return Category::kForwardBackward;
}

Trace trace_of(const StepEvents& step) {
  Trace trace(1);
  const Seconds end = TimeMark::between(step.begin, step.end);
  const Seconds passes_end =
      step.passes_end ? TimeMark::between(step.begin, *step.passes_end) : end;
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
  for (const StepEvent& event : step.parts) {
    if (event.part == StepPart::kVisit) continue;
    const Seconds start = TimeMark::between(step.begin, event.begin);
    const Seconds duration = TimeMark::between(event.begin, event.end);
    if (event.part == StepPart::kWait) {  // before it gradients may have been copied
      fill_passes(start);
      now = start + duration;
      continue;
    }
    fill_passes(std::min(start, passes_end));
    fill(start, "prepare", category_of(event.part));
    now = start + duration;
    trace.add({.rank = 0,
               .name = trace.intern(event.name),
               .lane = Lane::kCompute,
               .category = category_of(event.part),
               .start = start,
               .duration = duration});
  }
  fill_passes(end);
  add_messages(step, trace);
  return trace;
}

}  // namespace spdkfac::runtime
