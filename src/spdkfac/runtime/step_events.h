// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spdkfac/comm/communicator.h"
#include "spdkfac/runtime/factor_id.h"
#include "spdkfac/runtime/time_mark.h"
#include "spdkfac/trace/trace.h"

namespace spdkfac::runtime {

// The parts of a step that are timed. kVisit: the capture sees a call of a layer (side A) or the
// gradient of its output (side G), with everything that follows from it. kWait: for other ranks.
enum class StepPart {
  kVisit,
  kFactor,
  kPack,
  kAverage,
  kInverse,
  kUnpack,
  kPrecondition,
  kClip,
  kWait,
};

struct StepEvent {
  // A factor, or a layer (by its factor A), that the event is about, and its part of the time.
  struct Share {
    FactorId factor;
    double part = 1;
  };

  StepPart part = StepPart::kVisit;
  std::string name;           // as traces show it
  std::vector<Share> shares;  // empty: the times of layers do not contain it
  TimeMark begin;
  TimeMark end;
};

struct MessageEvent {
  Category category = Category::kGradientComm;
  std::string name;
  std::int64_t elements = 0;
  Work work;  // asked for its times only by those who want them, since that may wait
};

// What one rank did in one step: from the end of the step before, or from where its recording
// began. Layer times, traces and breakdowns are functions of it.
struct StepEvents {
  TimeMark begin;
  std::optional<TimeMark> passes_end;  // the backward pass is over
  TimeMark end;
  std::vector<StepEvent> parts;  // in the order of their begin
  std::vector<MessageEvent> messages;
};

}  // namespace spdkfac::runtime
