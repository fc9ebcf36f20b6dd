// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

namespace spdkfac::data {

// Shifts each image by up to 4 pixels in each direction, filling with zeros, and mirrors every
// second one on average: what is usual for images of 32 by 32. Image i changes as a function of
// (seed, epoch, indices[i]) only.
at::Tensor random_crop_and_flip(const at::Tensor& images, std::span<const std::int64_t> indices,
                                std::uint64_t seed, std::int64_t epoch);

}  // namespace spdkfac::data
