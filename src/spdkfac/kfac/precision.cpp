// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/precision.h"

#include <utility>

#include <ATen/Context.h>

namespace spdkfac {
namespace {

thread_local bool to_bf16 = false;

}  // namespace

const std::vector<std::string>& precision_names() {
  static const std::vector<std::string> names = {"tf32", "fp32", "bf16"};
  return names;
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

}  // namespace spdkfac
