// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "spdkfac/kfac/block_inverse.h"

namespace spdkfac::kfac {

// Products of float matrices on a GPU, about as exact as in fp32 and faster where they are large:
// each operand, multiplied by a power of two, is split into two halves (22 bits), and of the four
// products of these the three that count are one product of halves, added up in fp32, over three
// times the length. Elements of the blocks of an inversion (inverse_kernels.h) have bounds: M's
// diagonal is below 2, and the root of its smallest eigenvalue above 1/1500. Larger elements than
// 4 and 4094 would be cut.
class SplitProduct {
 public:
  // Room for `elements` parts; two operands have three for each of their elements.
  SplitProduct(std::int64_t elements, at::Device device);

  // out = beta·out + alpha·left·right for batches [batch, rows, columns], whose dimensions are
  // multiples of kSplitUnit; all have rows in one piece, operands rows or columns. As many matrices
  // at once, and so much of their inner dimension, as there is room for.
  void multiply(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right, double beta,
                double alpha, BlockKinds kinds) const;

  std::int64_t bytes() const { return static_cast<std::int64_t>(memory_.nbytes()); }

 private:
  void multiply_at_once(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right,
                        float beta, float alpha, BlockKinds kinds) const;

  at::Tensor memory_;
};

}  // namespace spdkfac::kfac
