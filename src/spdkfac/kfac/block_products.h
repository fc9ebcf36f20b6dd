// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "spdkfac/base/units.h"

namespace spdkfac::kfac {

// Products of vectors with themselves, added to the blocks that a factor has along its diagonal
// (FactorShape), or overwriting them; what lies between the blocks is never computed. Only the
// upper triangles are meant, and padding is left alone. `sum` is [matrices, dim, dim].

// Whether a sum has the blocks of so many groups with factors of `size` rows.
bool has_blocks(const at::Tensor& sum, std::int64_t groups, std::int64_t size);

// scale·Σvvᵀ for vectors that are rows [count, features], each with a trailing 1 with `bias`. A
// diagonal takes at most `memory` for a copy of some rows.
void add_row_products(const at::Tensor& rows, bool bias, double scale, Bytes memory, at::Tensor sum,
                      bool overwrite);

// Likewise for vectors that are columns [groups, rows, count] in the type of the sum.
void add_column_products(const at::Tensor& columns, double scale, at::Tensor sum, bool overwrite);

}  // namespace spdkfac::kfac
