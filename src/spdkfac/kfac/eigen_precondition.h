// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "spdkfac/kfac/graft.h"
#include "spdkfac/kfac/inverse.h"
#include "spdkfac/kfac/modes.h"

namespace spdkfac::kfac {

// What Solver::kEkfac and kAdam keep of a layer's gradients [groups, out, in].
struct BasisMoments {
  at::Tensor first;   // of kAdam, of the gradients as they are; of kEkfac empty
  at::Tensor second;  // of the gradients in the eigenvectors, Q_Gᵀ·∇W·Q_A
  at::Tensor steps;   // 0-d, double: how many gradients they hold

  BasisMoments(at::IntArrayRef shape, const at::TensorOptions& options, Solver solver);
};

// A solver that keeps eigenvectors, and its numbers.
struct BasisRule {
  Solver solver = Solver::kEigen;
  Damping mode = Damping::kPi;
  double damping = 0;
  AdamOptions adam = {};
};

// The eigenvectors of a layer's factors, with its moments where the solver has some.
struct LayerBasis {
  Inverse& a;
  Inverse& g;
  BasisMoments* moments = nullptr;
};

// Moments of turned eigenvectors: v' = (Q_Gᵀ·Q_G')²ᵀ·v·(Q_Aᵀ·Q_A')², squares of elements, as if the
// elements of a gradient were uncorrelated.
void turn_moments(const LayerBasis& layer);

// Of kEkfac: takes a gradient into the second moments. One that is not finite counts as zero.
void observe(const at::Tensor& gradient, const LayerBasis& layer, const BasisRule& rule);

// out = the preconditioned gradient:
//   kEigen  Q_G·[(Q_Gᵀ·∇W·Q_A) / (λ_G·λ_Aᵀ + γ)]·Q_Aᵀ, which is (A⊗G+γI)⁻¹·∇W
//   kEkfac  the same with the second moments, scaled to the mean of λ_G·λ_Aᵀ, in place of it
//   kAdam   Q_G·[(Q_Gᵀ·m·Q_A) / (√v+ε)]·Q_Aᵀ, with Adam's corrections of both moments
// γ is the damping of the rule, times the mean of λ_G·λ_Aᵀ with kRelative. Returns ⟨V, ∇W⟩ (of
// kAdam ⟨V, m⟩) as inner_product() does; kAdam always has a result.
at::Tensor precondition_in_basis(const at::Tensor& gradient, const LayerBasis& layer,
                                 const BasisRule& rule, at::Tensor out);

}  // namespace spdkfac::kfac
