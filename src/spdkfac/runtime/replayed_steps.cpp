// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/replayed_steps.h"

namespace spdkfac::runtime {

int ReplayedSteps::variant(bool factors, bool inverses, const std::vector<bool>& stale) {
  Key key{.factors = factors, .inverses = inverses, .stale = {}};
  if (inverses) key.stale = stale;
  return variants_.try_emplace(std::move(key), static_cast<int>(variants_.size())).first->second;
}

ReplayedSteps::Outcome ReplayedSteps::replayed(int variant, const std::vector<bool>& stale) const {
  Outcome outcome = outcomes_.at(variant);
  for (const auto& [key, number] : variants_) {
    if (number != variant || key.inverses) continue;
    // Layers that were stale when it was recorded need not be so now.
    for (std::size_t layer = 0; layer < stale.size(); ++layer) {
      outcome.stale[layer] = stale[layer] || outcome.averaged[layer];
    }
  }
  return outcome;
}

}  // namespace spdkfac::runtime
