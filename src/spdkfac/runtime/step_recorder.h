// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spdkfac/runtime/step_events.h"

namespace spdkfac::runtime {

// Collects the events of the current step while somebody observes. The times are those of the CPU's
// clock, or events on the GPU's current stream; nothing waits for them here.
class StepRecorder {
 public:
  bool on() const { return current_ != nullptr; }

  // The current step begins here; what was recorded of it is dropped.
  void start(c10::Device device);
  void stop() { current_.reset(); }
  void passes_end(c10::Device device);
  void add(MessageEvent message);
  // Ends the step and stops. Null when nothing was recorded.
  std::shared_ptr<const StepEvents> finish(c10::Device device);

 private:
  friend class StepSpan;
  std::shared_ptr<StepEvents> current_;
};

// One part of a step, from construction to destruction. Costs one test when nobody observes.
class StepSpan {
 public:
  // Traces show it as `what` with the layer's name behind it. Its time counts as that of the factor
  // (or of the layer) `of`, if one is given.
  StepSpan(StepRecorder& recorder, StepPart part, c10::Device device, const char* what,
           const std::string& layer = {}, std::optional<FactorId> of = std::nullopt);
  ~StepSpan();
  StepSpan(const StepSpan&) = delete;
  StepSpan& operator=(const StepSpan&) = delete;

  // Several share the time instead.
  void set_shares(std::vector<StepEvent::Share> shares);

 private:
  std::shared_ptr<StepEvents> step_;  // null: nobody observes
  std::size_t index_ = 0;
  c10::Device device_;
};

}  // namespace spdkfac::runtime
