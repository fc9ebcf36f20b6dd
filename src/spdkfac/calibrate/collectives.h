// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "spdkfac/calibrate/timing.h"
#include "spdkfac/plan/fit.h"

namespace spdkfac::calibrate {

// Those that plans use.
inline constexpr std::array kCollectives{Operation::kAllReduce, Operation::kReduce,
                                         Operation::kBroadcast};

// Seconds by elements, sizes increasing.
struct CollectiveTimes {
  Operation operation = Operation::kAllReduce;
  std::vector<plan::Measurement> times;
};

// Measures the collectives of kCollectives. The roots of reduce and broadcast take turns.
class CollectiveStage {
 public:
  // Tries two sizes, to know how long it will take. With a budget it leaves out the largest sizes
  // that do not fit into it, but keeps three. The bench outlives it.
  CollectiveStage(const Bench& bench, std::vector<std::int64_t> sizes, int repetitions,
                  std::optional<Seconds> budget = std::nullopt);

  Seconds estimate() const { return estimate_; }
  std::size_t samples() const;  // that measure() will take
  std::vector<CollectiveTimes> measure() const;

 private:
  const Bench& bench_;
  std::vector<std::int64_t> sizes_;
  int repetitions_;
  Seconds estimate_;
};

}  // namespace spdkfac::calibrate
