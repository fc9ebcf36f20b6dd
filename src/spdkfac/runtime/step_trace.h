// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spdkfac/comm/communicator.h"
#include "spdkfac/runtime/time_mark.h"
#include "spdkfac/trace/trace.h"

namespace spdkfac {

// Records what K-FAC does during a step. What lies between marks is forward, backward and update;
// behind passes_end() it prepares the next mark and counts as that. CPU clocks, or events on the
// GPU's current stream, which are read only when the trace is asked for.
class StepTrace {
 public:
  // Switched off it costs one test per mark.
  explicit StepTrace(bool enabled) : enabled_(enabled) {}

  // A step lasts from here to the next call. The finished one is what trace() gives.
  void next_step(at::Device device);
  // The current step begins here; what was recorded of it is dropped.
  void restart(at::Device device);

  // The backward pass is over; from here on K-FAC has the step to itself.
  void passes_end(at::Device device);

  // Marks the part of a step from construction to destruction.
  class Span {
   public:
    Span(StepTrace& trace, Category category, const char* what, const std::string& name,
         at::Device device);
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   protected:
    void set_idle();

   private:
    StepTrace* trace_;
    at::Device device_;
  };

  // Marks waiting for other ranks, likewise: nothing is computed meanwhile.
  class Wait : public Span {
   public:
    Wait(StepTrace& trace, at::Device device)
        : Span(trace, Category::kForwardBackward, "", "", device) {
      set_idle();
    }
  };

  // An operation of this rank's communicator; nothing where its times are not known.
  void add_channel(Category category, const std::string& name, std::int64_t elements,
                   const std::optional<OperationSpan>& span);

  // When it began, on this host's clock.
  TimeMark::Clock::time_point begin() const {
    return finished_.begin ? finished_.begin->time : TimeMark::Clock::time_point();
  }
  // The last finished step; waits for the GPU. Empty before.
  Trace trace() const;

 private:
  struct Event {
    Category category = Category::kForwardBackward;
    std::string name;
    TimeMark begin;
    TimeMark end;
    bool idle = false;
  };
  struct ChannelEvent {
    Category category;
    std::string name;
    std::int64_t elements;
    OperationSpan span;
  };
  struct Step {
    std::optional<TimeMark> begin;
    std::optional<TimeMark> end;
    std::optional<TimeMark> passes_end;
    std::vector<Event> events;
    std::vector<ChannelEvent> channel;
  };

  void add_channel_events(Trace& trace) const;

  bool enabled_;
  Step current_;
  Step finished_;
};

}  // namespace spdkfac
