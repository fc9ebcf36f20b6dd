// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/data/index_tensor.h"

#include <ATen/ATen.h>

namespace spdkfac::data {

at::Tensor index_tensor(std::span<const std::int64_t> numbers, at::Device device) {
  const at::Tensor here =
      at::tensor(at::ArrayRef<std::int64_t>(numbers.data(), numbers.size()), at::kLong);
  if (device.is_cpu()) return here;
  return here.pin_memory().to(device, at::kLong, /*non_blocking=*/true);
}

}  // namespace spdkfac::data
