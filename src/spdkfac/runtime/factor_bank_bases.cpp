// SPDX-License-Identifier: Apache-2.0
// What a FactorBank does with eigenvectors, and what travels of them and of inverses.
#include <ATen/ATen.h>

#include "spdkfac/kfac/eigenbasis.h"
#include "spdkfac/kfac/symmetric.h"
#include "spdkfac/runtime/factor_bank.h"

namespace spdkfac::runtime {

void FactorBank::write_inverse(FactorId id, const at::Tensor& buffer) const {
  const kfac::Inverse& inverse = *factor(id).inverse;
  if (keeps_basis(options_.solver)) {
    kfac::pack_basis(inverse, buffer);
  } else {
    kfac::pack_upper(inverse.value, buffer);
  }
}

void FactorBank::read_inverse(FactorId id, const at::Tensor& buffer) {
  kfac::Inverse& inverse = *factor(id).inverse;
  if (keeps_basis(options_.solver)) {
    kfac::unpack_basis(buffer, inverse);
  } else {
    kfac::unpack_upper(buffer, inverse.value);
  }
}

kfac::LayerBasis FactorBank::basis_of(std::size_t layer) {
  FactorState& a = factor({layer, FactorSide::kA});
  FactorState& g = factor({layer, FactorSide::kG});
  return {*a.inverse, *g.inverse, g.basis_moments ? &*g.basis_moments : nullptr};
}

kfac::BasisRule FactorBank::basis_rule() const {
  return {options_.solver, options_.damping_mode, options_.damping, options_.graft_adam};
}

void FactorBank::observe(std::size_t layer) {
  const PrecisionGuard precise(solving_, states_[layer].layer().weight.device());
  kfac::observe(joined_gradient(layer, scratch_of(layer)[0]), basis_of(layer), basis_rule());
}

void FactorBank::turn_moments() {
  if (!keeps_moments(options_.solver)) return;
  for (std::size_t layer = 0; layer < states_.size(); ++layer) {
    if (states_[layer].has_inverses()) kfac::turn_moments(basis_of(layer));
  }
}

}  // namespace spdkfac::runtime
