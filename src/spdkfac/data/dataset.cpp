// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/data/dataset.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "spdkfac/data/index_tensor.h"
#include "spdkfac/data/synthetic.h"

namespace spdkfac::data {

std::string ImageShape::text() const { return fmt::format("{}x{}x{}", channels, height, width); }

Dataset Dataset::to(at::Device device) const {
  Dataset result = *this;
  if (result.synthetic) {
    result.synthetic->patterns = result.synthetic->patterns.to(device);
    result.synthetic->noise = result.synthetic->noise.to(device);
  } else {
    result.images = result.images.to(device);
    result.labels = result.labels.to(device);
  }
  return result;
}

Batch gather(const Dataset& data, std::span<const std::int64_t> indices) {
  if (data.synthetic) return synthesize(*data.synthetic, data.shape, data.split, indices);
  const at::Tensor where = index_tensor(indices, data.images.device());
  return {data.images.index_select(0, where), data.labels.index_select(0, where)};
}

}  // namespace spdkfac::data
