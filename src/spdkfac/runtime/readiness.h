// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "spdkfac/runtime/factor_id.h"

namespace spdkfac::runtime {

// Counts how often each layer is called, and each gradient finished, in a step. The first step
// shows how often that is; from then on a tensor is complete when as many have come. What did not
// come in the first step is never complete, since nobody knows when it will have come.
class Readiness {
 public:
  // `gradients`: the number of gradients of each layer.
  explicit Readiness(const std::vector<std::size_t>& gradients);

  void begin();
  // Ends a step of so many passes; the first one becomes the measure of all others.
  void end(std::int64_t passes);
  bool learned() const { return expected_.has_value(); }

  void count(FactorId id) { ++counts_.calls[index(id)]; }
  void count(std::size_t layer, std::size_t gradient) { ++counts_.gradients[layer][gradient]; }

  // Of a step after the first.
  bool complete(FactorId id) const { return expected(id) > 0 && counted(id) == expected(id); }
  bool gradients_complete(std::size_t layer) const;
  bool passes_complete(std::int64_t passes) const { return passes >= expected_->passes; }
  std::int64_t counted(std::size_t layer, std::size_t gradient) const {
    const std::vector<std::int64_t>& counts = counts_.gradients[layer];
    return gradient < counts.size() ? counts[gradient] : 0;
  }
  std::int64_t counted(FactorId id) const { return counts_.calls[index(id)]; }
  std::int64_t expected(FactorId id) const { return expected_->calls[index(id)]; }

 private:
  struct Counts {
    std::vector<std::int64_t> calls;                   // of A and G of each layer
    std::vector<std::vector<std::int64_t>> gradients;  // of each layer
    std::int64_t passes = 0;
  };
  static std::size_t index(FactorId id) {
    return 2 * id.layer + (id.side == FactorSide::kA ? 0 : 1);
  }

  Counts zero_;
  Counts counts_;
  std::optional<Counts> expected_;
};

}  // namespace spdkfac::runtime
