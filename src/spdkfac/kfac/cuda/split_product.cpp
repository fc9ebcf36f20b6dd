// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/cuda/split_product.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include "spdkfac/base/check.h"
#include "spdkfac/kfac/cuda/split_kernels.h"
#include "spdkfac/kfac/precision.h"

namespace spdkfac {
namespace {

constexpr std::int64_t kParts = 3;

// The parts of operands along their inner dimension, `axis`, in the memory.
at::Tensor split(const at::Tensor& operands, std::int64_t axis, SplitOrder order,
                 const at::Tensor& memory) {
  const bool in_rows = operands.stride(2) == 1;
  const at::Tensor stored = in_rows ? operands : operands.mT();
  SPDKFAC_CHECK(stored.stride(2) == 1, "an operand lies in pieces");
  const bool beside = (axis == 2) == in_rows;
  const SplitBatch batch{.size = stored.size(0),
                         .rows = stored.size(1),
                         .columns = stored.size(2),
                         .matrix_stride = stored.stride(0),
                         .row_stride = stored.stride(1)};
  C10_CUDA_CHECK(launch_split(stored.const_data_ptr<float>(), batch,
                              beside ? SplitPlaces::kSideBySide : SplitPlaces::kBelow, order,
                              memory.mutable_data_ptr<float>(), c10::cuda::getCurrentCUDAStream()));
  const at::Tensor parts = memory.narrow(0, 0, kParts * operands.numel())
                               .view({batch.size, batch.rows * (beside ? 1 : kParts),
                                      batch.columns * (beside ? kParts : 1)});
  return in_rows ? parts : parts.mT();
}

}  // namespace

void split_product(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right,
                   double beta, double alpha, const at::Tensor& memory) {
  const std::int64_t inner = left.size(2);
  const std::int64_t a_row = kParts * (left.size(1) + right.size(2));  // of the inner dimension
  const std::int64_t length = std::min(inner, memory.numel() / a_row);
  SPDKFAC_CHECK(length >= 1, "too little room to split operands in");
  const std::int64_t at_once = length < inner ? 1 : memory.numel() / (a_row * inner);
  const PrecisionGuard tf32(Precision::kTf32);
  for (std::int64_t first = 0; first < out.size(0); first += at_once) {
    const std::int64_t count = std::min(at_once, out.size(0) - first);
    for (std::int64_t begin = 0; begin < inner; begin += length) {
      const std::int64_t part = std::min(length, inner - begin);
      const at::Tensor lefts = left.narrow(0, first, count).narrow(2, begin, part);
      const at::Tensor rights = right.narrow(0, first, count).narrow(1, begin, part);
      const std::int64_t used = kParts * lefts.numel();
      out.narrow(0, first, count)
          .baddbmm_(
              split(lefts, 2, SplitOrder::kLeft, memory),
              split(rights, 1, SplitOrder::kRight, memory.narrow(0, used, memory.numel() - used)),
              begin == 0 ? beta : 1, alpha);
    }
  }
}

}  // namespace spdkfac
