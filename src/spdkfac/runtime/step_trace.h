// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include "spdkfac/base/trace.h"

namespace spdkfac {

// Records what K-FAC does during a step; everything between is forward, backward and update. CPU
// clocks, or events on the GPU's current stream, which are read only when the trace is asked for.
class StepTrace {
 public:
  // Switched off it costs one test per mark.
  explicit StepTrace(bool enabled) : enabled_(enabled) {}

  // A step lasts from here to the next call. The finished one is what trace() gives.
  void next_step(at::Device device);
  // The current step begins here; what was recorded of it is dropped.
  void restart(at::Device device);

  // Marks the part of a step from construction to destruction.
  class Span {
   public:
    Span(StepTrace& trace, Category category, const char* what, const std::string& name,
         at::Device device);
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    StepTrace* trace_;
    at::Device device_;
  };

  // The last finished step; waits for the GPU. Empty before.
  Trace trace() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Mark {
    Clock::time_point time;
    std::optional<c10::Event> event;
  };
  struct Event {
    Category category = Category::kForwardBackward;
    std::string name;
    Mark begin;
    Mark end;
  };
  struct Step {
    std::optional<Mark> begin;
    std::optional<Mark> end;
    std::vector<Event> events;
  };

  static Mark mark(at::Device device);
  static Seconds between(const Mark& begin, const Mark& end);

  bool enabled_;
  Step current_;
  Step finished_;
};

}  // namespace spdkfac
