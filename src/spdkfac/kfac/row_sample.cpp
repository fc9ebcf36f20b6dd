// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/row_sample.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

namespace spdkfac::kfac {
namespace {

constexpr std::int64_t kLargestStride = 8;

// A number from 0 to below `count` that steps spread evenly (splitmix64's multiplier).
std::int64_t spread(std::int64_t step, std::int64_t count) {
  const std::uint64_t mixed = (static_cast<std::uint64_t>(step) + 1) * 0x9E3779B97F4A7C15ULL;
  return static_cast<std::int64_t>((mixed >> 33) % static_cast<std::uint64_t>(count));
}

}  // namespace

RowSample sample_rows(const at::Tensor& tensor, const LayerUse& use, std::int64_t most,
                      std::int64_t step) {
  if (most == 0 || !tensor.defined() || use.by_example) return {tensor};
  std::int64_t stride = std::min(use.rows() / most, kLargestStride);
  if (stride <= 1) return {tensor};
  const c10::NoGradGuard no_grad;
  const bool single_image = use.conv && tensor.dim() == use.conv->dimensions + 1;
  if (single_image) return {tensor};
  const at::Tensor all = use.conv ? tensor : tensor.reshape({-1, tensor.size(-1)});
  stride = std::min(stride, all.size(0));
  const at::Tensor some = all.slice(0, spread(step, stride), std::nullopt, stride);
  return {some, static_cast<double>(all.size(0)) / static_cast<double>(some.size(0))};
}

}  // namespace spdkfac::kfac
