// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace spdkfac::kfac {

// How far factors have moved, by their diagonals. Factors are [groups, d, d], diagonals [groups,
// d], all on one device. Nothing waits for a GPU.

// Writes the diagonals of the factors.
void keep_diagonals(const std::vector<at::Tensor>& factors,
                    const std::vector<at::Tensor>& diagonals);

// ‖diag(X) − diagonal‖/‖diagonal‖ of each factor, [factors] in double precision; at most 1e30, also
// where the diagonal is zero and the factor is not.
at::Tensor relative_changes(const std::vector<at::Tensor>& factors,
                            const std::vector<at::Tensor>& diagonals);

}  // namespace spdkfac::kfac
