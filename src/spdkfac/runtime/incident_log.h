// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include "spdkfac/runtime/factor_id.h"

namespace spdkfac::runtime {

enum class IncidentKind {
  kFactorNotFinite,    // left out of the running average
  kFactorAbsent,       // no rank has called the layer
  kInverseFailed,      // it needed more damping
  kInverseKept,        // the previous inverse stays
  kLayerScaled,        // without inverses, its gradient was scaled like those of other layers
  kGradientNotFinite,  // all gradients were set to zero
};

// What a flag of a step tells about: an element for each factor, or one for all gradients.
struct IncidentNote {
  struct Factor {
    FactorId id;
    std::int64_t flags = 1;  // of its inverse
    std::int64_t size = 0;   // rows
  };
  IncidentKind kind = IncidentKind::kGradientNotFinite;
  std::vector<Factor> factors;
  std::int64_t step = 0;
};

// An element of a flag that was set.
struct Incident {
  std::shared_ptr<const IncidentNote> note;
  std::size_t index = 0;
  std::int64_t times = 0;
};

// Brings what went wrong on the device to the host. On the CPU a flag is read when it is noted; on
// CUDA the flags of a step are copied behind its work and read when they have arrived, a step
// later; nobody waits. Those of a step that is recorded as a graph are added up on the device each
// time it is replayed, until finish() reads the sums.
class IncidentLog {
 public:
  // A flag: a tensor of bool or int32 whose elements say how often it happened. Returns what is
  // known at once.
  [[nodiscard]] std::vector<Incident> note(const at::Tensor& flag, IncidentNote note);
  // Sends off what was noted, and returns what has arrived.
  [[nodiscard]] std::vector<Incident> end_step();
  // Waits for everything that was sent or replayed.
  [[nodiscard]] std::vector<Incident> finish();

 private:
  struct Note {
    at::Tensor flag;  // until it is sent
    std::int64_t size;
    std::shared_ptr<const IncidentNote> what;
  };
  struct Pending {
    at::Tensor values;  // on the host
    std::vector<Note> notes;
    c10::Event arrived;
  };
  // The sums of a recorded step's flags.
  struct Recorded {
    at::Tensor sums;
    at::Tensor seen;  // of them, on the host
    std::vector<Note> notes;
  };

  void send(const at::Tensor& flags, std::vector<Note> notes);
  void record(const at::Tensor& flags, std::vector<Note> notes);

  std::vector<Note> notes_;
  std::deque<Pending> pending_;
  std::vector<Recorded> recorded_;
  // Sums for steps to be recorded, by the number of flags: kinds of steps may have equally many.
  std::map<std::int64_t, std::vector<at::Tensor>> cleared_;
};

}  // namespace spdkfac::runtime
