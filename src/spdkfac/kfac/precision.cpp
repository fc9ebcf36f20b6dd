// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/precision.h"

#include <utility>

#include <ATen/ATen.h>
#include <ATen/Context.h>

namespace spdkfac {
namespace {

thread_local bool to_bf16 = false;

}  // namespace

const std::vector<std::string>& precision_names() {
  static const std::vector<std::string> names = {"tf32", "fp32", "bf16"};
  return names;
}

at::Tensor rounded_to(Precision precision, const at::Tensor& tensor) {
  if (tensor.scalar_type() != at::kFloat || precision == Precision::kFp32) return tensor;
  if (precision == Precision::kBf16) return tensor.to(at::kBFloat16);
  constexpr std::int32_t kLowBits = (1 << 13) - 1;  // of the 24, tf32 keeps 11
  // What is not finite stays so: the highest bits of its fraction are kept.
  return tensor.view(at::kInt).bitwise_and(~kLowBits).view(at::kFloat);
}

PrecisionGuard::PrecisionGuard(Precision precision, c10::Device device)
    : bf16_(std::exchange(to_bf16, precision == Precision::kBf16)) {
  if (!device.is_cuda()) return;
  at::Context& torch = at::globalContext();
  before_ = Settings{torch.allowTF32CuBLAS(), torch.allowTF32CuDNN()};
  torch.setAllowTF32CuBLAS(precision != Precision::kFp32);
  torch.setAllowTF32CuDNN(precision != Precision::kFp32);
}

PrecisionGuard::~PrecisionGuard() {
  to_bf16 = bf16_;
  if (!before_) return;
  at::globalContext().setAllowTF32CuBLAS(before_->cublas);
  at::globalContext().setAllowTF32CuDNN(before_->cudnn);
}

bool PrecisionGuard::rounds_to_bf16() { return to_bf16; }

at::Tensor PrecisionGuard::rounded(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return tensor;
  if (to_bf16) return rounded_to(Precision::kBf16, tensor);
  const bool tf32 = at::globalContext().allowTF32CuBLAS();
  return tf32 ? rounded_to(Precision::kTf32, tensor) : tensor;
}

}  // namespace spdkfac
