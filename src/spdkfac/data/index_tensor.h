// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

namespace spdkfac::data {

// The numbers as int64 [n] on the device. A GPU has them for what is queued after; the host does
// not wait for that.
at::Tensor index_tensor(std::span<const std::int64_t> numbers, at::Device device);

}  // namespace spdkfac::data
