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

PrecisionGuard::PrecisionGuard(Precision precision)
    : cublas_(at::globalContext().allowTF32CuBLAS()),
      cudnn_(at::globalContext().allowTF32CuDNN()),
      bf16_(std::exchange(to_bf16, precision == Precision::kBf16)) {
  at::globalContext().setAllowTF32CuBLAS(precision != Precision::kFp32);
  at::globalContext().setAllowTF32CuDNN(precision != Precision::kFp32);
}

PrecisionGuard::~PrecisionGuard() {
  at::globalContext().setAllowTF32CuBLAS(cublas_);
  at::globalContext().setAllowTF32CuDNN(cudnn_);
  to_bf16 = bf16_;
}

bool PrecisionGuard::rounds_to_bf16() { return to_bf16; }

}  // namespace spdkfac
