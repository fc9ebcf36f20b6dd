// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace spdkfac::kfac {

// Inverts a symmetric matrix [n, n] on the CPU in place, as GPUs do: where it is not positive
// definite, pivots are raised (pivots.h). Its upper triangle is read, and of the result it alone is
// meant. Returns a PivotState; after kPivotsNotFinite the result means nothing.
std::int32_t invert_with_raised_pivots(const at::Tensor& matrix);

}  // namespace spdkfac::kfac
