// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace spdkfac {

// out = beta·out + alpha·left·right for batches [batch, rows, columns] of float matrices on a GPU,
// about as exact as in fp32 and faster where they are large: each operand is split into two of
// tf32, and of the four products of these the three that count are one product of tf32 over three
// times the length. Operands have rows or columns in one piece. As many matrices at once, and so
// much of their inner dimension, as the floats of `memory` take.
void split_product(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right,
                   double beta, double alpha, const at::Tensor& memory);

}  // namespace spdkfac
