// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/residence.h"

#include <ATen/ATen.h>

#include "spdkfac/kfac/symmetric.h"

namespace spdkfac::runtime {
namespace {

// A packed matrix and a number of its own, as one message.
at::Tensor state_buffer(const FactorState& state) {
  return at::zeros({packed_elements(state.dim()) + 1}, state.sum.options().dtype(at::kDouble));
}

void write_state(const at::Tensor& matrix, const at::Tensor& number, at::Tensor buffer) {
  const std::int64_t elements = buffer.numel() - 1;
  at::Tensor packed = at::empty({elements}, matrix.options());
  kfac::pack_upper(matrix, packed);
  buffer.narrow(0, 0, elements).copy_(packed);
  buffer.narrow(0, elements, 1).copy_(number);
}

}  // namespace

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

void Residence::gather() {
  for (const auto& [id, residence] : residences_) {
    if (residence.average) share_average(id, *residence.average);
    if (residence.inverse) share_inverse(id, *residence.inverse);
  }
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
  at::Tensor buffer = state_buffer(state);
  if (communicator_.rank() == root) {
    write_state(state.average->mean(), state.average->weight(), buffer);
  }
  communicator_.broadcast_async(buffer, root, "running average " + layer.layer().name).wait();
  if (communicator_.rank() == root) return;
  layer.keep(id.side, true, state.inverse.has_value());
  at::Tensor mean = at::empty_like(state.sum);
  const std::int64_t elements = buffer.numel() - 1;
  kfac::unpack_upper(buffer.narrow(0, 0, elements).to(mean.scalar_type()), mean);
  state.average->restore(mean, buffer[elements]);
}

void Residence::share_inverse(FactorId id, int root) {
  LayerState& layer = bank_.state(id.layer);
  FactorState& state = layer.factor(id.side);
  at::Tensor buffer = state_buffer(state);
  if (communicator_.rank() == root) write_state(state.inverse->value, state.inverse->boost, buffer);
  communicator_.broadcast_async(buffer, root, "inverse " + layer.layer().name).wait();
  if (communicator_.rank() == root) return;
  layer.keep(id.side, state.average.has_value(), true);
  const std::int64_t elements = buffer.numel() - 1;
  kfac::unpack_upper(buffer.narrow(0, 0, elements).to(state.sum.scalar_type()),
                     state.inverse->value);
  state.inverse->boost.copy_(buffer.narrow(0, elements, 1));
}

}  // namespace spdkfac::runtime
