// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <spdlog/logger.h>

#include "spdkfac/runtime/incident_log.h"
#include "spdkfac/runtime/kfac_counters.h"
#include "spdkfac/runtime/kfac_options.h"
#include "spdkfac/runtime/tracked_layer.h"

namespace spdkfac::runtime {

// Counts what K-FAC does on this rank and logs what goes wrong, each kind once per factor.
class Incidents {
 public:
  // `place` ends the lines of the log: " on rank 3", or nothing. No logger: no lines.
  Incidents(const std::vector<TrackedLayer>& layers, const KfacOptions& options,
            std::shared_ptr<spdlog::logger> logger, std::string place);

  using Factor = IncidentNote::Factor;
  // `finite` has an element for each factor; those that are not were left out.
  void averaged(const std::vector<Factor>& factors, const at::Tensor& finite);
  // `failures` and `kept` have an element for each group of each factor.
  void inverted(const std::vector<Factor>& factors, const at::Tensor& failures,
                const at::Tensor& kept);
  // The layer has a gradient, but no call of it was seen.
  void not_captured(std::size_t layer);
  // `bad`, 0-d: the gradients of this step were not finite and set to zero.
  void gradients(const at::Tensor& bad);

  // Sends off what was noted in the step.
  void end_step() { take(log_.end_step()); }
  // Waits until everything has been counted.
  void finish() { take(log_.finish()); }
  KfacCounters& counters() { return counters_; }
  const KfacCounters& counters() const { return counters_; }

 private:
  void note(IncidentKind kind, std::vector<Factor> factors, const at::Tensor& flag);
  // Counts and logs.
  void take(const std::vector<Incident>& incidents);
  void count(IncidentKind kind, std::int64_t times);
  // What the line is about; each kind of line is written once per subject.
  std::string subject_of(const Incident& incident) const;
  std::string text_of(const Incident& incident) const;

  std::vector<std::string> names_;  // of the layers
  const Damping damping_mode_;
  const double damping_;
  std::shared_ptr<spdlog::logger> logger_;
  const std::string place_;
  KfacCounters counters_;
  IncidentLog log_;
  std::set<std::pair<IncidentKind, std::string>> logged_;
  std::vector<bool> not_captured_logged_;
};

}  // namespace spdkfac::runtime
