// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/two_sided.h"

#include <algorithm>
#include <array>

#include <ATen/ATen.h>

namespace spdkfac::kfac {
namespace {

// A plain product for one group: batches of one take a slower path on some back ends.
void multiply(const at::Tensor& left, const at::Tensor& right, at::Tensor out) {
  if (out.size(0) == 1) {
    at::Tensor product = out[0];
    at::mm_out(product, left[0], right[0]);
  } else {
    at::bmm_out(out, left, right);
  }
}

// Calls `take` with each block of all groups, [groups, rows, rows], and the range of its rows among
// those of a factor.
template <class Take>
void each_block(const at::Tensor& blocks, std::int64_t groups, std::int64_t size, bool transposed,
                const Take& take) {
  const std::int64_t dim = blocks.size(1);
  const at::Tensor of_groups = blocks.view({groups, -1, dim, dim});
  for (std::int64_t block = 0; block < of_groups.size(1); ++block) {
    const std::int64_t rows = std::min(dim, size - block * dim);
    const at::Tensor one = of_groups.select(1, block).narrow(1, 0, rows).narrow(2, 0, rows);
    take(transposed ? one.mT() : one, block * dim, rows);
  }
}

}  // namespace

void multiply_rows(const at::Tensor& blocks, const at::Tensor& matrix, at::Tensor out,
                   bool transposed) {
  if (blocks.size(1) == 1) {
    at::mul_out(out, matrix, blocks.view({matrix.size(0), -1, 1}));
    return;
  }
  if (blocks.size(0) * blocks.size(1) == matrix.size(0) * matrix.size(1)) {  // nothing is padded
    const std::array<std::int64_t, 3> shape = {blocks.size(0), blocks.size(1), matrix.size(2)};
    return multiply(transposed ? blocks.mT() : blocks, matrix.view(shape), out.view(shape));
  }
  each_block(blocks, matrix.size(0), matrix.size(1), transposed,
             [&](const at::Tensor& block, std::int64_t first, std::int64_t rows) {
               multiply(block, matrix.narrow(1, first, rows), out.narrow(1, first, rows));
             });
}

void multiply_columns(const at::Tensor& blocks, const at::Tensor& matrix, at::Tensor out,
                      bool transposed) {
  if (blocks.size(1) == 1) {
    at::mul_out(out, matrix, blocks.view({matrix.size(0), 1, -1}));
    return;
  }
  each_block(blocks, matrix.size(0), matrix.size(2), transposed,
             [&](const at::Tensor& block, std::int64_t first, std::int64_t rows) {
               multiply(matrix.narrow(2, first, rows), block, out.narrow(2, first, rows));
             });
}

}  // namespace spdkfac::kfac
