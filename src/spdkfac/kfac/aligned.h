// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace spdkfac::kfac {

// On a GPU, products of matrices whose rows begin at odd places take twice as long. Large ones have
// a margin there: rows and columns beyond them, up to a multiple of 8, that are always zero.

// Zeros [count, rows, columns], a view of memory that may have a margin.
at::Tensor aligned_zeros(std::int64_t count, std::int64_t rows, std::int64_t columns,
                         const at::TensorOptions& options);

// The same matrices with their margin.
at::Tensor with_margin(const at::Tensor& matrices);

}  // namespace spdkfac::kfac
