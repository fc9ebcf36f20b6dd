// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "spdkfac/base/log.h"
#include "spdkfac/runtime/clipping.h"
#include "spdkfac/runtime/incident_log.h"
#include "spdkfac/runtime/kfac_counters.h"
#include "spdkfac/runtime/kfac_options.h"
#include "spdkfac/runtime/tracked_layer.h"

namespace spdkfac::runtime {

// Counts what K-FAC does on this rank and logs what goes wrong: at the end of a step one line for
// each kind, with all layers of which it has not been said before.
class Incidents {
 public:
  // `place` ends the lines of the log: " on rank 3", or nothing. No logger: no lines.
  Incidents(const std::vector<TrackedLayer>& layers, const KfacOptions& options,
            std::shared_ptr<Logger> logger, std::string place);

  using Factor = IncidentNote::Factor;
  // `finite` has an element for each factor; those that are not were left out.
  void averaged(const std::vector<Factor>& factors, const at::Tensor& finite);
  // Likewise those of `averaged` that no rank had: nothing is wrong, but they were not averaged in.
  void absent(const std::vector<Factor>& factors, const at::Tensor& flags);
  // `failures` and `kept` have the elements of each factor's (kfac::Inverse).
  void inverted(const std::vector<Factor>& factors, const at::Tensor& failures,
                const at::Tensor& kept);
  // An inverse is not renewed, because its factor has not moved.
  void inverse_skipped() { ++counters_.inverses_skipped; }
  // The layer has a gradient, but no call of it was seen.
  void not_captured(std::size_t layer);
  // `raw` has an element for each of these layers: its gradient was scaled, for lack of inverses.
  void scaled(const std::vector<ClippedLayer>& layers, const at::Tensor& raw);
  // `bad`, 0-d: the gradients of this step were not finite and set to zero.
  void gradients(const at::Tensor& bad);

  // Sends off what was noted in the step.
  void end_step();
  // Waits until everything has been counted.
  void finish();
  KfacCounters& counters() { return counters_; }
  const KfacCounters& counters() const { return counters_; }

 private:
  void note(IncidentKind kind, std::vector<Factor> factors, const at::Tensor& flag);
  // Counts, and keeps for the log what is new.
  void take(const std::vector<Incident>& incidents);
  void count(IncidentKind kind, std::int64_t times);
  std::string subject_of(const Incident& incident) const;
  void write_lines();
  const char* length_without_inverses() const;
  std::string text_of(IncidentKind kind, std::int64_t step, const std::string& subjects) const;

  std::vector<std::string> names_;  // of the layers
  const KfacOptions& options_;
  std::shared_ptr<Logger> logger_;
  const std::string place_;
  KfacCounters counters_;
  IncidentLog log_;
  std::set<std::pair<IncidentKind, std::string>> known_;
  std::map<std::pair<IncidentKind, std::int64_t>, std::vector<std::string>> new_;  // by step
  std::vector<bool> not_captured_known_;
  std::vector<std::string> not_captured_new_;
};

}  // namespace spdkfac::runtime
