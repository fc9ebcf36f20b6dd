// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/step_meter.h"

#include "spdkfac/runtime/preconditioner_impl.h"
#include "spdkfac/runtime/step_trace.h"

namespace spdkfac {

void StepMeter::time_layers(bool on) { kfac_.impl_->time_layers(on); }

TimedSteps StepMeter::timed_steps() const {
  const std::vector<runtime::RankProfile> ranks = kfac_.impl_->profiles();
  TimedSteps timed{.model = kfac_.model(), .slowness = runtime::slowness_of_steps(ranks)};
  const std::vector<LayerTimes> times = runtime::mean_times(ranks);
  for (std::size_t layer = 0; layer < times.size(); ++layer) {
    timed.model.layers[layer].times = times[layer];
  }
  return timed;
}

void StepMeter::start_trace() { kfac_.impl_->start_trace(); }

Trace StepMeter::trace() const {
  const auto& last = kfac_.impl_->last_events();
  return last ? runtime::trace_of(*last) : Trace(1);
}

std::chrono::steady_clock::time_point StepMeter::trace_begin() const {
  const auto& last = kfac_.impl_->last_events();
  return last ? last->begin.time : std::chrono::steady_clock::time_point();
}

}  // namespace spdkfac
