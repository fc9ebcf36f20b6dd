// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/cuda/split_product.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cublas_v2.h>

#include "spdkfac/base/check.h"
#include "spdkfac/kfac/cuda/split_kernels.h"

namespace spdkfac::kfac {
namespace {

constexpr std::int64_t kParts = 3;

// As large as the bounds of elements allow: what is far below them keeps the more of its bits.
float scale_of(BlockKind kind) { return kind == BlockKind::kMatrix ? 16384 : 16; }

// An operand whose rows lie in one piece, or its transpose's do, and its parts as cuBLAS takes
// them. That thinks in columns: it sees rows as columns of the transpose, which is what a product
// of rows needs.
struct Operand {
  Operand(const at::Tensor& operands, bool inner_is_last, SplitOrder order, BlockKind kind,
          __half* out)
      : in_rows(operands.stride(2) == 1) {
    const at::Tensor stored = in_rows ? operands : operands.mT();
    SPDKFAC_CHECK(stored.stride(2) == 1, "an operand lies in pieces");
    SPDKFAC_CHECK(stored.size(2) % kSplitUnit == 0 && stored.stride(0) % kSplitUnit == 0 &&
                      stored.stride(1) % kSplitUnit == 0 &&
                      stored.storage_offset() % kSplitUnit == 0,
                  "an operand is not aligned");
    const bool beside = inner_is_last == in_rows;
    split = {.matrices = stored.const_data_ptr<float>(),
             .size = stored.size(0),
             .rows = stored.size(1),
             .columns = stored.size(2),
             .matrix_stride = stored.stride(0),
             .row_stride = stored.stride(1),
             .scale = scale_of(kind),
             .places = beside ? SplitPlaces::kSideBySide : SplitPlaces::kBelow,
             .order = order,
             .out = out};
  }

  cublasOperation_t turn() const { return in_rows ? CUBLAS_OP_N : CUBLAS_OP_T; }
  int leading() const {
    return static_cast<int>(split.columns *
                            (split.places == SplitPlaces::kSideBySide ? kParts : 1));
  }
  long long stride() const { return kParts * split.rows * split.columns; }

  bool in_rows;
  SplitOperand split;
};

}  // namespace

SplitProduct::SplitProduct(std::int64_t elements, at::Device device)
    : memory_(at::empty({elements}, at::TensorOptions(device).dtype(at::kHalf))) {}

void SplitProduct::multiply(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right,
                            double beta, double alpha, BlockKinds kinds) const {
  const std::int64_t inner = left.size(2);
  const std::int64_t a_row = kParts * (left.size(1) + right.size(2));  // of the inner dimension
  const std::int64_t room = memory_.numel() / a_row;
  const std::int64_t length = std::min(inner, room / kSplitUnit * kSplitUnit);
  SPDKFAC_CHECK(length >= 1, "too little room to split operands in");
  const std::int64_t at_once = length < inner ? 1 : room / inner;
  for (std::int64_t first = 0; first < out.size(0); first += at_once) {
    const std::int64_t count = std::min(at_once, out.size(0) - first);
    for (std::int64_t begin = 0; begin < inner; begin += length) {
      const std::int64_t part = std::min(length, inner - begin);
      multiply_at_once(out.narrow(0, first, count),
                       left.narrow(0, first, count).narrow(2, begin, part),
                       right.narrow(0, first, count).narrow(1, begin, part),
                       static_cast<float>(begin == 0 ? beta : 1), static_cast<float>(alpha), kinds);
    }
  }
}

void SplitProduct::multiply_at_once(const at::Tensor& out, const at::Tensor& left,
                                    const at::Tensor& right, float beta, float alpha,
                                    BlockKinds kinds) const {
  SPDKFAC_CHECK(out.stride(2) == 1, "a product lies in pieces");
  auto* memory = reinterpret_cast<__half*>(memory_.mutable_data_ptr<at::Half>());
  const Operand a(left, true, SplitOrder::kLeft, kinds.left, memory);
  const Operand b(right, false, SplitOrder::kRight, kinds.right, memory + kParts * left.numel());
  C10_CUDA_CHECK(launch_split(a.split, b.split, c10::cuda::getCurrentCUDAStream()));
  const float scaled = alpha / (a.split.scale * b.split.scale);
  const cublasStatus_t status = cublasGemmStridedBatchedEx(
      at::cuda::getCurrentCUDABlasHandle(), b.turn(), a.turn(), static_cast<int>(out.size(2)),
      static_cast<int>(out.size(1)), static_cast<int>(kParts * left.size(2)), &scaled, b.split.out,
      CUDA_R_16F, b.leading(), b.stride(), a.split.out, CUDA_R_16F, a.leading(), a.stride(), &beta,
      out.mutable_data_ptr<float>(), CUDA_R_32F, static_cast<int>(out.stride(1)), out.stride(0),
      static_cast<int>(out.size(0)), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  SPDKFAC_CHECK(status == CUBLAS_STATUS_SUCCESS, cublasGetStatusString(status));
}

}  // namespace spdkfac::kfac
