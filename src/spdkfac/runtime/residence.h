// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "spdkfac/comm/communicator.h"
#include "spdkfac/runtime/factor_bank.h"
#include "spdkfac/runtime/layer_order.h"
#include "spdkfac/runtime/state_parts.h"

namespace spdkfac::runtime {

// Which single rank keeps a factor's running average and its inverse; all do where none is named.
struct FactorResidence {
  std::optional<int> average;
  std::optional<int> inverse;
  bool operator==(const FactorResidence&) const = default;
};
using Residences = std::map<FactorId, FactorResidence>;

// Those of the factors that travel under the plan of a full step. A factor that does not travel is
// kept by all.
Residences residences_of(const Plan& full, const LayerOrder& order);

// Keeps on this rank what the plan says, and moves averages and inverses when the plan changes.
class Residence {
 public:
  Residence(Communicator& communicator, FactorBank& bank)
      : communicator_(communicator), bank_(bank) {}

  // A new plan: what single ranks keep is sent where it will be kept. Collective.
  void migrate(const Residences& to);
  // Makes what the plan wants here, and drops what only others keep.
  void drop_what_others_keep();

  // Whether the plan says who keeps the factor, and who does.
  bool planned(FactorId id) const { return residences_.contains(id); }
  FactorResidence of(FactorId id) const {
    return planned(id) ? residences_.at(id) : FactorResidence{};
  }
  Communicator& communicator() const { return communicator_; }

 private:
  void share_average(FactorId id, int root);
  void share_inverse(FactorId id, int root);
  void share(const std::vector<StatePart>& parts, int root, const std::string& what);

  Communicator& communicator_;
  FactorBank& bank_;
  Residences residences_;  // empty before the first plan
};

}  // namespace spdkfac::runtime
