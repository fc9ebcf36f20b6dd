// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/data/augment.h"

#include <vector>

#include <ATen/ATen.h>

#include "spdkfac/data/index_tensor.h"
#include "spdkfac/data/shuffle.h"

namespace spdkfac::data {

at::Tensor random_crop_and_flip(const at::Tensor& images, std::span<const std::int64_t> indices,
                                std::uint64_t seed, std::int64_t epoch) {
  constexpr std::int64_t kPadding = 4;
  constexpr std::uint64_t kPlaces = 2 * kPadding + 1;
  const auto count = static_cast<std::int64_t>(indices.size());
  const std::int64_t height = images.size(2);
  const std::int64_t width = images.size(3);
  // Rows and columns of the padded image that each image takes.
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> columns;
  const std::uint64_t epoch_seed = mix(mix(seed, 0xa09), static_cast<std::uint64_t>(epoch));
  for (const std::int64_t index : indices) {
    const std::uint64_t bits = mix(epoch_seed, static_cast<std::uint64_t>(index));
    const auto top = static_cast<std::int64_t>((bits & 0xffffff) % kPlaces);
    const auto left = static_cast<std::int64_t>((bits >> 24 & 0xffffff) % kPlaces);
    const bool flip = (bits >> 63) != 0;
    for (std::int64_t y = 0; y < height; ++y) rows.push_back(top + y);
    for (std::int64_t x = 0; x < width; ++x) columns.push_back(left + (flip ? width - 1 - x : x));
  }
  const auto options = at::TensorOptions(at::kLong).device(images.device());
  const at::Tensor padded =
      at::constant_pad_nd(images, {kPadding, kPadding, kPadding, kPadding}).permute({0, 2, 3, 1});
  const at::Tensor which = at::arange(count, options).view({count, 1, 1});
  return padded
      .index({which, index_tensor(rows, images.device()).view({count, height, 1}),
              index_tensor(columns, images.device()).view({count, 1, width})})
      .permute({0, 3, 1, 2})
      .contiguous();
}

}  // namespace spdkfac::data
