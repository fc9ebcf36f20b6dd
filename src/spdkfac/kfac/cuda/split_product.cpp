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

// Matrices that lie in rows, or whose transposes do.
struct Stored {
  explicit Stored(const at::Tensor& operands) : in_rows(operands.stride(2) == 1) {
    const at::Tensor stored = in_rows ? operands : operands.mT();
    SPDKFAC_CHECK(stored.stride(2) == 1, "an operand lies in pieces");
    batch = {.matrices = stored.const_data_ptr<float>(),
             .size = stored.size(0),
             .rows = stored.size(1),
             .columns = stored.size(2),
             .matrix_stride = stored.stride(0),
             .row_stride = stored.stride(1)};
  }

  SplitBatch batch;
  bool in_rows;
};

// The parts of an operand as cuBLAS, which thinks in columns, takes it: it sees rows as columns of
// the transpose, which is what a product of rows needs.
struct Operand {
  const __half* parts;
  cublasOperation_t turn;
  int leading;
  long long stride;
};

Operand split(const Stored& stored, bool inner_is_last, SplitOrder order, const float* largest,
              __half* out, cudaStream_t stream) {
  const SplitBatch& batch = stored.batch;
  const bool beside = inner_is_last == stored.in_rows;
  C10_CUDA_CHECK(launch_split(batch, beside ? SplitPlaces::kSideBySide : SplitPlaces::kBelow, order,
                              largest, out, stream));
  return {.parts = out,
          .turn = stored.in_rows ? CUBLAS_OP_N : CUBLAS_OP_T,
          .leading = static_cast<int>(batch.columns * (beside ? kParts : 1)),
          .stride = static_cast<long long>(kParts * batch.rows * batch.columns)};
}

void check(cublasStatus_t status) {
  SPDKFAC_CHECK(status == CUBLAS_STATUS_SUCCESS, cublasGetStatusString(status));
}

// While it lives, factors of a product are read from the GPU.
class FactorsOnDevice {
 public:
  explicit FactorsOnDevice(cublasHandle_t handle) : handle_(handle) {
    check(cublasGetPointerMode(handle_, &before_));
    check(cublasSetPointerMode(handle_, CUBLAS_POINTER_MODE_DEVICE));
  }
  ~FactorsOnDevice() { cublasSetPointerMode(handle_, before_); }
  FactorsOnDevice(const FactorsOnDevice&) = delete;
  FactorsOnDevice& operator=(const FactorsOnDevice&) = delete;

 private:
  cublasHandle_t handle_;
  cublasPointerMode_t before_ = CUBLAS_POINTER_MODE_HOST;
};

}  // namespace

SplitProduct::SplitProduct(std::int64_t elements, at::Device device)
    : memory_(at::empty({elements}, at::TensorOptions(device).dtype(at::kHalf))),
      numbers_(at::zeros({4}, at::TensorOptions(device).dtype(at::kFloat))) {}

void SplitProduct::multiply(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right,
                            double beta, double alpha) const {
  const std::int64_t inner = left.size(2);
  const std::int64_t a_row = kParts * (left.size(1) + right.size(2));  // of the inner dimension
  const std::int64_t length = std::min(inner, memory_.numel() / a_row);
  SPDKFAC_CHECK(length >= 1, "too little room to split operands in");
  const std::int64_t at_once = length < inner ? 1 : memory_.numel() / (a_row * inner);
  for (std::int64_t first = 0; first < out.size(0); first += at_once) {
    const std::int64_t count = std::min(at_once, out.size(0) - first);
    for (std::int64_t begin = 0; begin < inner; begin += length) {
      const std::int64_t part = std::min(length, inner - begin);
      multiply_at_once(out.narrow(0, first, count),
                       left.narrow(0, first, count).narrow(2, begin, part),
                       right.narrow(0, first, count).narrow(1, begin, part),
                       static_cast<float>(begin == 0 ? beta : 1), static_cast<float>(alpha));
    }
  }
}

void SplitProduct::multiply_at_once(const at::Tensor& out, const at::Tensor& left,
                                    const at::Tensor& right, float beta, float alpha) const {
  SPDKFAC_CHECK(out.stride(2) == 1, "a product lies in pieces");
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  auto* numbers = numbers_.mutable_data_ptr<float>();
  auto* memory = reinterpret_cast<__half*>(memory_.mutable_data_ptr<at::Half>());
  const Stored stored_left(left);
  const Stored stored_right(right);
  C10_CUDA_CHECK(cudaMemsetAsync(numbers, 0, 2 * sizeof(float), stream));
  C10_CUDA_CHECK(launch_largest(stored_left.batch, numbers, stream));
  C10_CUDA_CHECK(launch_largest(stored_right.batch, numbers + 1, stream));
  const Operand a = split(stored_left, true, SplitOrder::kLeft, numbers, memory, stream);
  const Operand b = split(stored_right, false, SplitOrder::kRight, numbers + 1,
                          memory + kParts * left.numel(), stream);
  C10_CUDA_CHECK(launch_factors(numbers, numbers + 1, alpha, beta, numbers + 2, stream));
  cublasHandle_t handle = at::cuda::getCurrentCUDABlasHandle();
  const FactorsOnDevice on_device(handle);
  check(cublasGemmStridedBatchedEx(
      handle, b.turn, a.turn, static_cast<int>(out.size(2)), static_cast<int>(out.size(1)),
      static_cast<int>(kParts * left.size(2)), numbers + 2, b.parts, CUDA_R_16F, b.leading,
      b.stride, a.parts, CUDA_R_16F, a.leading, a.stride, numbers + 3,
      out.mutable_data_ptr<float>(), CUDA_R_32F, static_cast<int>(out.stride(1)), out.stride(0),
      static_cast<int>(out.size(0)), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

}  // namespace spdkfac::kfac
