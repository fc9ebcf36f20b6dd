// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace spdkfac::kfac {

// Products of gradients [groups, out, in] with what was made of their factors (FactorShape), which
// may be in blocks or the elements of a diagonal.

// out = B·matrix, or Bᵀ·matrix.
void multiply_rows(const at::Tensor& blocks, const at::Tensor& matrix, at::Tensor out,
                   bool transposed = false);
// out = matrix·B, or matrix·Bᵀ.
void multiply_columns(const at::Tensor& blocks, const at::Tensor& matrix, at::Tensor out,
                      bool transposed = false);

}  // namespace spdkfac::kfac
