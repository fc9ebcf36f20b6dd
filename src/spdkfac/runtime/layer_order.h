// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "spdkfac/plan/plan.h"
#include "spdkfac/runtime/factor_id.h"

namespace spdkfac::runtime {

// Plans number layers in the order of their calls, the runtime in the order of the model's modules.
// A layer that was not called when the plan was made is not in it.
class LayerOrder {
 public:
  LayerOrder() = default;
  // `tracked`: the tracked layer, one of `layers`, of each layer of the plan.
  LayerOrder(std::vector<std::size_t> tracked, std::size_t layers)
      : tracked_(std::move(tracked)), planned_(layers) {
    for (std::size_t i = 0; i < tracked_.size(); ++i) planned_[tracked_[i]] = static_cast<int>(i);
  }

  const std::vector<std::size_t>& tracked() const { return tracked_; }
  std::size_t tracked(int planned) const { return tracked_[static_cast<std::size_t>(planned)]; }
  std::optional<int> planned(std::size_t tracked) const { return planned_[tracked]; }

  FactorId factor_of(const FactorPlacement& placement) const {
    return {tracked(placement.layer), placement.side};
  }
  // Of a factor in a message.
  FactorId factor_of(const Member& member) const {
    return {tracked(member.layer),
            member.kind == TensorKind::kFactorA ? FactorSide::kA : FactorSide::kG};
  }

 private:
  std::vector<std::size_t> tracked_;
  std::vector<std::optional<int>> planned_;
};

// Whether a message brings the means of diagonals, which dampings need of factors that live with
// different owners. They are known only when the averages are.
inline bool is_means(const Message& message) {
  return message.members.front().kind == TensorKind::kDiagonalMeans;
}

inline Member factor_member(int layer, FactorSide side) {
  return {side == FactorSide::kA ? TensorKind::kFactorA : TensorKind::kFactorG, layer};
}

}  // namespace spdkfac::runtime
