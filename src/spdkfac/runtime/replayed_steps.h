// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "spdkfac/runtime/kfac_counters.h"

namespace spdkfac::runtime {

// The host's part of steps that are recorded on a GPU and replayed: which recording fits the coming
// step, and what the host would know had it queued the work itself.
class ReplayedSteps {
 public:
  // A number for the work of a step. What the host decides while it queues the step depends on what
  // is due and, where inverses are, on the layers whose averages changed since (`stale`); so steps
  // of one number queue the same work.
  int variant(bool factors, bool inverses, const std::vector<bool>& stale);

  // What a step did on the host.
  struct Outcome {
    KfacCounters made;           // what it added, without incidents
    std::vector<bool> averaged;  // by layer
    std::vector<bool> stale;     // afterwards
  };
  void ran(int variant, Outcome outcome) { outcomes_[variant] = std::move(outcome); }
  // The outcome of a replay where `stale` was so before it.
  Outcome replayed(int variant, const std::vector<bool>& stale) const;

 private:
  struct Key {
    bool factors = false;
    bool inverses = false;
    std::vector<bool> stale;  // empty without inverses
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, int> variants_;
  std::map<int, Outcome> outcomes_;
};

}  // namespace spdkfac::runtime
