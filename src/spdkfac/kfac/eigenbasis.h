// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "spdkfac/kfac/inverse.h"

namespace spdkfac::kfac {

// Of a solver that keeps eigenvectors: replaces them and the eigenvalues by those of a factor, the
// largest first; reads its upper triangles. They are exact, of solvers with moments those of the
// factor with a slight slope, so that ranks agree also where it has nothing. Groups whose factor is
// zero, and what is not finite, keep theirs. Waits for a GPU.
void refresh_basis(const at::Tensor& factor, Inverse& basis);

// A basis as it travels (FactorShape::result_elements): its eigenvectors, then its eigenvalues; of
// a diagonal these alone.
void pack_basis(const Inverse& basis, at::Tensor packed);
void unpack_basis(const at::Tensor& packed, Inverse& basis);

// The eigenvalues of each group without those of padding, [groups, size].
at::Tensor eigenvalues_of(const Inverse& basis);

}  // namespace spdkfac::kfac
