// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/block_inverse.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "spdkfac/base/check.h"

namespace spdkfac::kfac {
namespace {

// Products of a triangle of so many rows leave out a part that is zero, or not needed.
constexpr std::int64_t kWorthHalving = 1536;
// WᵀW of so many leaves is one product.
constexpr std::int64_t kLeavesAtOnce = 2;
constexpr BlockKinds kInverses{BlockKind::kInverse, BlockKind::kInverse};

// Rows of P: about half, so that blocks of kLeavesAtOnce leaves stay whole.
std::int64_t first_part(std::int64_t size, std::int64_t leaf_size) {
  if (size <= kLeavesAtOnce * leaf_size) return leaf_size;
  const std::int64_t unit = kLeavesAtOnce * leaf_size;
  return (size / 2 + unit - 1) / unit * unit;
}

std::int64_t half_of(std::int64_t size) { return size < kWorthHalving ? 0 : size / 2; }

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

  // out = alpha·lower·right. Here and below, `lower` is W.
  void lower_times(const at::Tensor& out, const at::Tensor& lower, const at::Tensor& right,
                   BlockKind kind_of_right, double alpha) const {
    const std::int64_t size = lower.size(1);
    const std::int64_t half = half_of(size);
    if (half > 0) {
      lower_times(rows_of(out, 0, half), rows_of(columns_of(lower, 0, half), 0, half),
                  rows_of(right, 0, half), kind_of_right, alpha);
    }
    multiply(rows_of(out, half, size), rows_of(lower, half, size), right, 0, alpha,
             {BlockKind::kInverse, kind_of_right});
  }

  // out = lowerᵀ·right, where `right` is T.
  void lower_transposed_times(const at::Tensor& out, const at::Tensor& lower,
                              const at::Tensor& right) const {
    const std::int64_t size = lower.size(1);
    const std::int64_t half = half_of(size);
    multiply(rows_of(out, 0, size - half), columns_of(lower, 0, size - half).mT(), right, 0, 1,
             {BlockKind::kInverse, BlockKind::kMatrix});
    if (half == 0) return;
    lower_transposed_times(rows_of(out, size - half, size),
                           rows_of(columns_of(lower, size - half, size), size - half, size),
                           rows_of(right, size - half, size));
  }

  // out = left·lower, where `left` is of W, too.
  void times_lower(const at::Tensor& out, const at::Tensor& left, const at::Tensor& lower) const {
    const std::int64_t size = lower.size(1);
    const std::int64_t half = half_of(size);
    multiply(columns_of(out, 0, size - half), left, columns_of(lower, 0, size - half), 0, 1,
             kInverses);
    if (half == 0) return;
    times_lower(columns_of(out, size - half, size), columns_of(left, size - half, size),
                rows_of(columns_of(lower, size - half, size), size - half, size));
  }

  // The upper triangle of out += alpha·valuesᵀ·values.
  void add_square(const at::Tensor& out, const at::Tensor& values, BlockKind kind,
                  double alpha) const {
    const std::int64_t size = out.size(1);
    const std::int64_t half = half_of(size);
    multiply(rows_of(out, 0, size - half), columns_of(values, 0, size - half).mT(), values, 1,
             alpha, {kind, kind});
    if (half == 0) return;
    add_square(rows_of(columns_of(out, size - half, size), size - half, size),
               columns_of(values, size - half, size), kind, alpha);
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
    lower_times(t, w1, above, BlockKind::kMatrix, 1);
    add_square(w2, t, BlockKind::kMatrix, -1);
    factorise(begin + m, k, used + elements);
    lower_transposed_times(above, w1, t);
    lower_times(block(begin + m, k, begin, m), w2, above.mT(), BlockKind::kInverse, -1);
    at::Tensor(above).zero_();
  }

  bool squared_at_once(std::int64_t size) const { return size <= kLeavesAtOnce * leaf_size; }

  // WᵀW above its diagonal blocks, but for what comes from below them.
  void square_above(std::int64_t begin, std::int64_t size) const {
    if (squared_at_once(size)) return;
    const std::int64_t m = first_part(size, leaf_size);
    const std::int64_t k = size - m;
    times_lower(block(begin, m, begin + m, k), block(begin + m, k, begin, m).mT(),
                block(begin + m, k, begin + m, k));
    square_above(begin, m);
    square_above(begin + m, k);
  }

  // Puts WᵀW of the diagonal blocks in their place.
  void square_diagonal() const {
    const std::int64_t size = matrices.size(1);
    const std::int64_t side = std::min(size, kLeavesAtOnce * leaf_size);
    const std::int64_t whole = size / side;
    const auto square_blocks = [&](const at::Tensor& blocks) {
      const at::Tensor w = scratch.narrow(0, 0, blocks.numel()).view(blocks.sizes());
      w.copy_(blocks);
      multiply(blocks, w.mT(), w, 0, 1, kInverses);
    };
    // The blocks of one matrix at once, or one of all matrices: whichever are more.
    if (whole > matrices.size(0)) {
      for (const at::Tensor& one : matrices.unbind()) {
        square_blocks(one.as_strided({whole, side, side},
                                     {side * (one.stride(0) + one.stride(1)), one.stride(0), 1}));
      }
    } else {
      for (std::int64_t i = 0; i < whole; ++i) square_blocks(block(i * side, side, i * side, side));
    }
    const std::int64_t rest = size - whole * side;
    if (rest > 0) square_blocks(block(size - rest, rest, size - rest, rest));
  }

  // Adds what comes from below the diagonal blocks.
  void add_squares(std::int64_t begin, std::int64_t size) const {
    if (squared_at_once(size)) return;
    const std::int64_t m = first_part(size, leaf_size);
    const std::int64_t k = size - m;
    add_squares(begin, m);  // before what is below the diagonal there is overwritten
    add_squares(begin + m, k);
    add_square(block(begin, m, begin, m), block(begin + m, k, begin, m), BlockKind::kInverse, 1);
  }
};

}  // namespace

void multiply_batches(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right,
                      double beta, double alpha, BlockKinds /*kinds*/) {
  at::Tensor(out).baddbmm_(left, right, beta, alpha);
}

std::int64_t block_scratch(std::int64_t size, std::int64_t leaf_size) {
  const std::int64_t squared = size * std::min(size, kLeavesAtOnce * leaf_size);
  if (size <= leaf_size) return squared;
  const std::int64_t m = first_part(size, leaf_size);
  const std::int64_t k = size - m;
  return std::max({squared, block_scratch(m, leaf_size), m * k + block_scratch(k, leaf_size)});
}

void invert_blocks(const at::Tensor& matrices, std::int64_t leaf_size, const at::Tensor& scratch,
                   const FactorLeaf& leaf, const Multiply& multiply) {
  SPDKFAC_CHECK(matrices.dim() == 3 && matrices.size(1) == matrices.size(2),
                "matrices to invert are not square");
  SPDKFAC_CHECK(scratch.numel() >= matrices.size(0) * block_scratch(matrices.size(1), leaf_size),
                "too little room to invert matrices in");
  const Recursion recursion{matrices, leaf_size, scratch, leaf, multiply};
  recursion.factorise(0, matrices.size(1), 0);
  recursion.square_above(0, matrices.size(1));
  recursion.square_diagonal();
  recursion.add_squares(0, matrices.size(1));
}

}  // namespace spdkfac::kfac
