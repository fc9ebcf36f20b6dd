// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>

#include "spdkfac/comm/communicator.h"
#include "spdkfac/runtime/factor_bank.h"
#include "spdkfac/runtime/layer_order.h"

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

  // A new plan: what single ranks keep is sent where it will be kept. Collective, like gather().
  void migrate(const Residences& to);
  // Everything to all ranks, for a checkpoint.
  void gather();
  // The reverse: drops what only others keep.
  void drop_what_others_keep();

 private:
  void share_average(FactorId id, int root);
  void share_inverse(FactorId id, int root);

  Communicator& communicator_;
  FactorBank& bank_;
  Residences residences_;  // empty before the first plan
};

}  // namespace spdkfac::runtime
