// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/aligned.h"

#include <ATen/ATen.h>

#include "spdkfac/base/check.h"

namespace spdkfac::kfac {
namespace {

constexpr std::int64_t kMarginUnit = 8;
constexpr std::int64_t kLarge = 64;  // fewer rows are not worth it

std::int64_t aligned(std::int64_t size) {
  return size < kLarge ? size : (size + kMarginUnit - 1) / kMarginUnit * kMarginUnit;
}

}  // namespace

at::Tensor aligned_zeros(std::int64_t count, std::int64_t rows, std::int64_t columns,
                         const at::TensorOptions& options) {
  if (!options.device().is_cuda()) return at::zeros({count, rows, columns}, options);
  return at::zeros({count, aligned(rows), aligned(columns)}, options)
      .narrow(1, 0, rows)
      .narrow(2, 0, columns);
}

at::Tensor with_margin(const at::Tensor& matrices) {
  SPDKFAC_CHECK(matrices.dim() == 3 && matrices.stride(2) == 1, "matrices do not lie in rows");
  if (matrices.is_contiguous()) return matrices;
  const std::int64_t columns = matrices.stride(1);
  return matrices.as_strided({matrices.size(0), matrices.stride(0) / columns, columns},
                             matrices.strides());
}

}  // namespace spdkfac::kfac
