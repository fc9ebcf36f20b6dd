// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include "spdkfac/plan/refresh_schedule.h"
#include "spdkfac/runtime/factor_bank.h"
#include "spdkfac/runtime/residence.h"
#include "spdkfac/runtime/step_work.h"

namespace spdkfac::runtime {

// Decides which steps renew factors and inverses, and, with adaptive intervals and spread
// refreshes, of which layers.
//
// Of a refresh that is spread, each step that renews factors renews the inverses of the layers of
// its part (RefreshSchedule), except in step 0: the first refresh is of all layers.
//
// With adaptive intervals a layer's inverses are renewed with its factors when these have moved by
// more than `refresh_change` since its inverses were made, and at the latest after
// `inverse_interval` steps. How far they have moved is measured on the device in each step that
// renews factors, by the rank that keeps the average (the first one, where all do), and summed over
// the ranks in one small message. It takes effect two steps later, so that the host never waits for
// a GPU. All ranks have the same numbers and decide alike; the numbers are part of LayerState and
// saved.
class Refreshes {
 public:
  Refreshes(const KfacOptions& options, FactorBank& bank, Residence& residence, bool second_order);

  // What is due in a step; asking changes nothing that later answers depend on.
  StepWork work(std::int64_t step) const;
  // The step has run. All ranks call it together.
  void ran(std::int64_t step, const StepWork& work);
  // Waits for what was measured, so that the states of the layers hold it.
  void settle();
  // Forgets it: other states were loaded.
  void forget() { pending_.reset(); }
  // The intervals of the options have changed.
  void reschedule();

 private:
  struct Measurement {
    at::Tensor values;  // on the host; on the CPU when `work` is done
    Work work;
    std::optional<c10::Event> arrived;  // on a GPU
  };
  bool adapts() const { return options_.interval == Refresh::kAdaptive; }
  bool is_due(const LayerState& layer, std::int64_t step) const;
  // Which layers a step renews, of those that renew factors.
  std::vector<bool> renewed_when_due(std::int64_t step) const;
  std::vector<bool> renewed_in_part(const plan::RefreshPart& part) const;
  Measurement measure() const;

  const KfacOptions& options_;
  FactorBank& bank_;
  Residence& residence_;
  const bool second_order_;
  mutable plan::RefreshSchedule schedule_;  // remembers where it has been asked last
  // Of spread refreshes: the number of parts asked for last, and that of each layer.
  mutable std::int64_t parts_ = 0;
  mutable std::vector<int> part_of_layer_;
  std::optional<Measurement> pending_;
};

}  // namespace spdkfac::runtime
