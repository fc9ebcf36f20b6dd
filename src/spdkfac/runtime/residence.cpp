// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/residence.h"

#include <ATen/ATen.h>

namespace spdkfac::runtime {
Residences residences_of(const Plan& full, const LayerOrder& order) {
  Residences residences;
  for (const Message& message : full.messages) {
    for (const Member& member : message.members) {
      if (is_factor(member)) residences[order.factor_of(member)].average = message.route.root;
    }
  }
  for (const FactorPlacement& factor : full.placements) {
    if (factor.sends_gradient) residences[order.factor_of(factor)].inverse = factor.owner;
  }
  return residences;
}

void Residence::migrate(const Residences& to) {
  for (const auto& [id, before] : residences_) {
    const FactorResidence& after = to.at(id);
    if (before.average && before.average != after.average) share_average(id, *before.average);
    if (before.inverse && before.inverse != after.inverse) share_inverse(id, *before.inverse);
  }
  residences_ = to;
  drop_what_others_keep();
}

void Residence::drop_what_others_keep() {
  const int rank = communicator_.rank();
  for (const auto& [id, residence] : residences_) {
    bank_.state(id.layer).keep(id.side, residence.average.value_or(rank) == rank,
                               residence.inverse.value_or(rank) == rank);
  }
}

void Residence::share_average(FactorId id, int root) {
  LayerState& layer = bank_.state(id.layer);
  FactorState& state = layer.factor(id.side);
  layer.keep(id.side, true, state.inverse.has_value());
  share(parts_of(*state.average, state.inverted), root, "running average " + layer.layer().name);
}

void Residence::share_inverse(FactorId id, int root) {
  LayerState& layer = bank_.state(id.layer);
  FactorState& state = layer.factor(id.side);
  layer.keep(id.side, state.average.has_value(), true);
  share(parts_of(*state.inverse, state.moments, state.basis_moments), root,
        "inverse " + layer.layer().name);
}

// In their own types, as bytes.
void Residence::share(const std::vector<StatePart>& parts, int root, const std::string& what) {
  const at::Tensor bytes = bytes_of(parts);
  communicator_.broadcast_async(bytes, root, what).wait();
  if (communicator_.rank() != root) read_bytes(bytes, parts);
}

}  // namespace spdkfac::runtime
