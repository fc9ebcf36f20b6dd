// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/block_products.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spdkfac/base/check.h"
#include "spdkfac/kfac/precision.h"
#include "spdkfac/kfac/symmetric.h"

namespace spdkfac::kfac {
namespace {

// Rows that stay in a core's cache while their squares are added up.
constexpr Bytes kCachedRows = 1 * kMebibyte;

// Σv² of each feature. Some rows at a time: their squares take as much memory as they do.
void add_row_squares(const at::Tensor& rows, bool bias, double scale, Bytes memory,
                     const at::Tensor& diagonal, bool overwrite) {
  const std::int64_t count = rows.size(0);
  const std::int64_t features = rows.size(1);
  if (overwrite) at::Tensor(diagonal).zero_();
  const at::Tensor to = diagonal.narrow(0, 0, features);
  if (rows.is_cpu()) memory = std::min(memory, kCachedRows);
  const auto row_bytes = features * static_cast<std::int64_t>(diagonal.element_size());
  const std::int64_t step =
      std::max<std::int64_t>(1, memory.value() / std::max<std::int64_t>(1, row_bytes));
  for (std::int64_t first = 0; first < count; first += step) {
    const at::Tensor part =
        rows.narrow(0, first, std::min(step, count - first)).to(diagonal.scalar_type());
    to.add_(part.square().sum(0), scale);
  }
  if (bias) diagonal.narrow(0, features, 1).add_(scale * static_cast<double>(count));
}

// One block, [d, d].
void add_block_of_rows(const at::Tensor& rows, bool bias, double scale, const at::Tensor& block,
                       bool overwrite) {
  const std::int64_t features = rows.size(1);
  const at::Tensor inner = block.narrow(0, 0, features).narrow(1, 0, features);
  if (!bias) return add_gram(rows.t(), scale, inner, overwrite);
  // Products and sums of the same values: otherwise few rows give an indefinite factor.
  const at::Tensor values = PrecisionGuard::rounded(rows);
  if (features > 0) add_gram(values.t(), scale, inner, overwrite);
  const at::Tensor last = block.select(1, features).narrow(0, 0, features + 1);
  if (overwrite) last.zero_();
  last.narrow(0, 0, features)
      .add_(at::sum(values, 0, /*keepdim=*/false, block.scalar_type()), scale);
  last.narrow(0, features, 1).add_(scale * static_cast<double>(rows.size(0)));
}

}  // namespace

bool has_blocks(const at::Tensor& sum, std::int64_t groups, std::int64_t size) {
  if (sum.dim() != 3 || sum.size(0) % groups != 0) return false;
  const std::int64_t blocks = sum.size(0) / groups;
  return sum.size(1) == sum.size(2) && sum.size(1) == (size + blocks - 1) / blocks;
}

void add_row_products(const at::Tensor& rows, bool bias, double scale, Bytes memory, at::Tensor sum,
                      bool overwrite) {
  const std::int64_t size = rows.size(1) + (bias ? 1 : 0);
  SPDKFAC_CHECK(has_blocks(sum, 1, size),
                fmt::format("{} features meet a sum of {}", size, fmt::join(sum.sizes(), " x ")));
  const std::int64_t dim = sum.size(1);
  if (dim == 1) {
    return add_row_squares(rows, bias, scale, memory, sum.view({sum.size(0)}), overwrite);
  }
  const at::Tensor values = rows.to(sum.scalar_type());
  for (std::int64_t block = 0; block < sum.size(0); ++block) {
    const std::int64_t first = block * dim;
    const std::int64_t features = std::min(dim, rows.size(1) - first);
    const bool with_bias = bias && block == sum.size(0) - 1;
    add_block_of_rows(values.narrow(1, first, features), with_bias, scale, sum[block], overwrite);
  }
}

void add_column_products(const at::Tensor& columns, double scale, at::Tensor sum, bool overwrite) {
  const std::int64_t groups = columns.size(0);
  const std::int64_t size = columns.size(1);
  SPDKFAC_CHECK(has_blocks(sum, groups, size),
                fmt::format("{} x {} features meet a sum of {}", groups, size,
                            fmt::join(sum.sizes(), " x ")));
  const std::int64_t dim = sum.size(1);
  if (dim == 1) {
    const at::Tensor diagonal = sum.view({groups, size});
    if (overwrite) diagonal.zero_();
    diagonal.add_(columns.square().sum(2), scale);
    return;
  }
  const at::Tensor blocks = sum.view({groups, -1, dim, dim});
  for (std::int64_t block = 0; block < blocks.size(1); ++block) {
    const std::int64_t rows = std::min(dim, size - block * dim);
    const at::Tensor part = columns.narrow(1, block * dim, rows);
    at::Tensor to = blocks.select(1, block).narrow(1, 0, rows).narrow(2, 0, rows);
    if (groups == 1) {
      add_gram(part[0], scale, to[0], overwrite);
    } else {
      to.baddbmm_(part, part.transpose(1, 2), overwrite ? 0 : 1, scale);
    }
  }
}

}  // namespace spdkfac::kfac
