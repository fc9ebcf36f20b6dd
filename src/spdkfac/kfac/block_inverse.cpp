// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/block_inverse.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "spdkfac/base/check.h"

namespace spdkfac::kfac {
namespace {

// Products of a triangle of so many rows leave out a quarter that is zero, or not needed.
constexpr std::int64_t kWorthHalving = 768;
// WᵀW of so many leaves is one product.
constexpr std::int64_t kLeavesSquaredAtOnce = 2;

// Rows of P: half of the leaves.
std::int64_t first_part(std::int64_t size, std::int64_t leaf_size) {
  const std::int64_t leaves = (size + leaf_size - 1) / leaf_size;
  return (leaves + 1) / 2 * leaf_size;
}

at::Tensor rows_of(const at::Tensor& matrices, std::int64_t begin, std::int64_t end) {
  return matrices.narrow(1, begin, end - begin);
}
at::Tensor columns_of(const at::Tensor& matrices, std::int64_t begin, std::int64_t end) {
  return matrices.narrow(2, begin, end - begin);
}

struct Recursion {
  const at::Tensor& matrices;
  std::int64_t leaf_size;
  const at::Tensor& scratch;
  const FactorLeaf& leaf;
  const Multiply& multiply;

  at::Tensor block(std::int64_t row, std::int64_t rows, std::int64_t column,
                   std::int64_t columns) const {
    return matrices.narrow(1, row, rows).narrow(2, column, columns);
  }

  // out = alpha·lower·right.
  void lower_times(const at::Tensor& out, const at::Tensor& lower, const at::Tensor& right,
                   double alpha) const {
    const std::int64_t size = lower.size(1);
    const std::int64_t half = size < kWorthHalving ? 0 : size / 2;
    if (half > 0) {
      multiply(rows_of(out, 0, half), rows_of(columns_of(lower, 0, half), 0, half),
               rows_of(right, 0, half), 0, alpha);
    }
    multiply(rows_of(out, half, size), rows_of(lower, half, size), right, 0, alpha);
  }

  // out = lowerᵀ·right.
  void lower_transposed_times(const at::Tensor& out, const at::Tensor& lower,
                              const at::Tensor& right) const {
    const std::int64_t size = lower.size(1);
    const std::int64_t half = size < kWorthHalving ? 0 : size / 2;
    if (half > 0) multiply(rows_of(out, 0, half), columns_of(lower, 0, half).mT(), right, 0, 1);
    multiply(rows_of(out, half, size), rows_of(columns_of(lower, half, size), half, size).mT(),
             rows_of(right, half, size), 0, 1);
  }

  // out = left·lower.
  void times_lower(const at::Tensor& out, const at::Tensor& left, const at::Tensor& lower) const {
    const std::int64_t size = lower.size(1);
    const std::int64_t half = size < kWorthHalving ? 0 : size / 2;
    if (half > 0) multiply(columns_of(out, 0, half), left, columns_of(lower, 0, half), 0, 1);
    multiply(columns_of(out, half, size), columns_of(left, half, size),
             rows_of(columns_of(lower, half, size), half, size), 0, 1);
  }

  // The upper triangle of out += alpha·valuesᵀ·values.
  void add_square(const at::Tensor& out, const at::Tensor& values, double alpha) const {
    const std::int64_t size = out.size(1);
    const std::int64_t half = size < kWorthHalving ? 0 : size / 2;
    if (half > 0) {
      multiply(rows_of(out, 0, half), columns_of(values, 0, half).mT(), values, 1, alpha);
    }
    const at::Tensor rest = columns_of(values, half, size);
    multiply(rows_of(columns_of(out, half, size), half, size), rest.mT(), rest, 1, alpha);
  }

  // Puts W in the place of M.
  void factorise(std::int64_t begin, std::int64_t size, std::int64_t used) const {
    if (size <= leaf_size) return leaf(begin, size);
    const std::int64_t m = first_part(size, leaf_size);
    const std::int64_t k = size - m;
    const std::int64_t elements = matrices.size(0) * m * k;
    const at::Tensor w1 = block(begin, m, begin, m);
    const at::Tensor w2 = block(begin + m, k, begin + m, k);
    const at::Tensor above = block(begin, m, begin + m, k);
    const at::Tensor t = scratch.narrow(0, used, elements).view({matrices.size(0), m, k});
    factorise(begin, m, used);
    lower_times(t, w1, above, 1);
    add_square(w2, t, -1);
    factorise(begin + m, k, used + elements);
    lower_transposed_times(above, w1, t);
    lower_times(block(begin + m, k, begin, m), w2, above.mT(), -1);
    at::Tensor(above).zero_();
  }

  // Puts the upper triangle of WᵀW in the place of W.
  void square(std::int64_t begin, std::int64_t size) const {
    const at::Tensor all = block(begin, size, begin, size);
    if (size <= kLeavesSquaredAtOnce * leaf_size) {
      const at::Tensor w = scratch.narrow(0, 0, all.numel()).view(all.sizes());
      w.copy_(all);
      return multiply(all, w.mT(), w, 0, 1);
    }
    const std::int64_t m = first_part(size, leaf_size);
    const std::int64_t k = size - m;
    const at::Tensor below = block(begin + m, k, begin, m);
    times_lower(block(begin, m, begin + m, k), below.mT(), block(begin + m, k, begin + m, k));
    square(begin, m);
    add_square(block(begin, m, begin, m), below, 1);
    square(begin + m, k);
  }
};

}  // namespace

void multiply_batches(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right,
                      double beta, double alpha) {
  at::Tensor(out).baddbmm_(left, right, beta, alpha);
}

std::int64_t block_scratch(std::int64_t size, std::int64_t leaf_size) {
  const std::int64_t squared = std::min(size, kLeavesSquaredAtOnce * leaf_size);
  if (size <= leaf_size) return squared * squared;
  const std::int64_t m = first_part(size, leaf_size);
  const std::int64_t k = size - m;
  return std::max({squared * squared, block_scratch(m, leaf_size),
                   m * k + block_scratch(k, leaf_size)});
}

void invert_blocks(const at::Tensor& matrices, std::int64_t leaf_size, const at::Tensor& scratch,
                   const FactorLeaf& leaf, const Multiply& multiply) {
  SPDKFAC_CHECK(matrices.dim() == 3 && matrices.size(1) == matrices.size(2),
                "matrices to invert are not square");
  SPDKFAC_CHECK(scratch.numel() >= matrices.size(0) * block_scratch(matrices.size(1), leaf_size),
                "too little room to invert matrices in");
  const Recursion recursion{matrices, leaf_size, scratch, leaf, multiply};
  recursion.factorise(0, matrices.size(1), 0);
  recursion.square(0, matrices.size(1));
}

}  // namespace spdkfac::kfac
