// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/step_recorder.h"

#include <utility>

#include <fmt/format.h>

namespace spdkfac::runtime {

void StepRecorder::start(c10::Device device) {
  current_ = std::make_shared<StepEvents>();
  current_->begin = TimeMark::now(device);
}

void StepRecorder::passes_end(c10::Device device) {
  if (on()) current_->passes_end = TimeMark::now(device);
}

void StepRecorder::add(MessageEvent message) {
  if (on()) current_->messages.push_back(std::move(message));
}

std::shared_ptr<const StepEvents> StepRecorder::finish(c10::Device device) {
  if (on()) current_->end = TimeMark::now(device);
  return std::exchange(current_, nullptr);
}

StepSpan::StepSpan(StepRecorder& recorder, StepPart part, c10::Device device, const char* what,
                   const std::string& layer, std::optional<FactorId> of)
    : device_(device) {
  if (!recorder.on()) return;
  step_ = recorder.current_;
  index_ = step_->parts.size();
  StepEvent& event = step_->parts.emplace_back();
  event.part = part;
  event.name = layer.empty() ? std::string(what) : fmt::format("{} {}", what, layer);
  if (of) event.shares.push_back({*of});
  event.begin = TimeMark::now(device);
}

StepSpan::~StepSpan() {
  if (step_) step_->parts[index_].end = TimeMark::now(device_);
}

void StepSpan::set_shares(std::vector<StepEvent::Share> shares) {
  if (step_) step_->parts[index_].shares = std::move(shares);
}

}  // namespace spdkfac::runtime
