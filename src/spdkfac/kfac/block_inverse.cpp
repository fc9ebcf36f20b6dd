// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/block_inverse.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "spdkfac/base/check.h"

namespace spdkfac::kfac {
namespace {

// Rows of P: half of the leaves.
std::int64_t first_part(std::int64_t size, std::int64_t leaf_size) {
  const std::int64_t leaves = (size + leaf_size - 1) / leaf_size;
  return (leaves + 1) / 2 * leaf_size;
}

struct Recursion {
  const at::Tensor& matrices;
  std::int64_t leaf_size;
  const at::Tensor& scratch;
  const InvertLeaf& leaf;
  const Multiply& multiply;

  at::Tensor block(std::int64_t row, std::int64_t rows, std::int64_t column,
                   std::int64_t columns) const {
    return matrices.narrow(1, row, rows).narrow(2, column, columns);
  }

  void invert(std::int64_t begin, std::int64_t size, std::int64_t used, bool whole) const {
    if (size <= leaf_size) return leaf(begin, size);
    const std::int64_t m = first_part(size, leaf_size);
    const std::int64_t k = size - m;
    const std::int64_t batch = matrices.size(0);
    invert(begin, m, used, false);
    const at::Tensor p = block(begin, m, begin, m);
    const at::Tensor q = block(begin, m, begin + m, k);
    const at::Tensor r = block(begin + m, k, begin + m, k);
    const at::Tensor t = scratch.narrow(0, used, batch * m * k).view({batch, m, k});
    multiply(t, p, q, 0, 1);
    multiply(r, q.mT(), t, 1, -1);
    invert(begin + m, k, used + batch * m * k, false);
    multiply(q, t, r, 0, -1);
    if (whole) {
      // Nobody reads what is below the diagonal.
      const std::int64_t half = m / 2;
      multiply(p.narrow(1, 0, half), q.narrow(1, 0, half), t.mT(), 1, -1);
      multiply(p.narrow(1, half, m - half).narrow(2, half, m - half), q.narrow(1, half, m - half),
               t.narrow(1, half, m - half).mT(), 1, -1);
    } else {
      multiply(p, q, t.mT(), 1, -1);
      block(begin + m, k, begin, m).copy_(q.mT());
    }
  }
};

}  // namespace

void multiply_batches(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right,
                      double beta, double alpha) {
  at::Tensor(out).baddbmm_(left, right, beta, alpha);
}

std::int64_t block_scratch(std::int64_t size, std::int64_t leaf_size) {
  if (size <= leaf_size) return 0;
  const std::int64_t m = first_part(size, leaf_size);
  const std::int64_t k = size - m;
  return std::max(block_scratch(m, leaf_size), m * k + block_scratch(k, leaf_size));
}

void invert_blocks(const at::Tensor& matrices, std::int64_t leaf_size, const at::Tensor& scratch,
                   const InvertLeaf& leaf, const Multiply& multiply) {
  SPDKFAC_CHECK(matrices.dim() == 3 && matrices.size(1) == matrices.size(2),
                "matrices to invert are not square");
  SPDKFAC_CHECK(scratch.numel() >= matrices.size(0) * block_scratch(matrices.size(1), leaf_size),
                "too little room to invert matrices in");
  Recursion{matrices, leaf_size, scratch, leaf, multiply}.invert(0, matrices.size(1), 0, true);
}

}  // namespace spdkfac::kfac
