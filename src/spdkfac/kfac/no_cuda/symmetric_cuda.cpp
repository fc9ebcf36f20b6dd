// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/cuda/symmetric_cuda.h"

#include "spdkfac/base/error.h"

namespace spdkfac {
namespace {

[[noreturn]] void fail() {
  throw ConfigError(
      "kfac: this build has no CUDA kernels; build with nvcc (of torch's CUDA version) on the "
      "path, "
      "-DSPDKFAC_CUDA=ON says what is missing");
}

}  // namespace

void pack_upper_cuda(const at::Tensor&, at::Tensor) { fail(); }

void unpack_upper_cuda(const at::Tensor&, at::Tensor) { fail(); }

}  // namespace spdkfac
