// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace spdkfac::kfac {

// Products of float matrices on a GPU, about as exact as in fp32 and faster where they are large:
// each operand, brought to a fit scale by a power of two, is split into two halves (22 bits), and
// of the four products of these the three that count are one product of halves, added up in fp32,
// over three times the length.
class SplitProduct {
 public:
  // Room for `elements` parts; two operands have three for each of their elements.
  SplitProduct(std::int64_t elements, at::Device device);

  // out = beta·out + alpha·left·right for batches [batch, rows, columns]; all have rows in one
  // piece, operands rows or columns. As many matrices at once, and so much of their inner
  // dimension, as there is room for.
  void multiply(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right, double beta,
                double alpha) const;

  std::int64_t bytes() const { return static_cast<std::int64_t>(memory_.nbytes()); }

 private:
  void multiply_at_once(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right,
                        float beta, float alpha) const;

  at::Tensor memory_;
  at::Tensor numbers_;  // the largest magnitudes of the operands; factors of the product
};

}  // namespace spdkfac::kfac
