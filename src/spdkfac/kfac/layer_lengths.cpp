// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/layer_lengths.h"

#include <algorithm>
#include <initializer_list>

#include <ATen/ATen.h>

namespace spdkfac::kfac {

std::vector<at::Tensor> lengths_of(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return {};
  const auto any = [&](std::initializer_list<at::ScalarType> types) {
    return std::any_of(tensors.begin(), tensors.end(), [&](const at::Tensor& one) {
      return std::find(types.begin(), types.end(), one.scalar_type()) != types.end();
    });
  };
  if (!any({at::kHalf, at::kBFloat16})) return at::_foreach_norm(tensors, 2);
  // One type for all, which is narrower than none of them.
  return at::_foreach_norm(tensors, 2, any({at::kDouble}) ? at::kDouble : at::kFloat);
}

at::Tensor squares_by_layer(const std::vector<at::Tensor>& lengths,
                            const std::vector<std::size_t>& layer_of, std::size_t layers,
                            at::Device device) {
  const auto size = static_cast<std::int64_t>(layers);
  at::Tensor sum = at::zeros({size}, at::device(device).dtype(at::kDouble));
  const at::Tensor zero = at::zeros({}, at::device(device).dtype(at::kFloat));
  // As many rows as a layer has tensors; where one has fewer, zeros.
  std::vector<std::vector<at::Tensor>> rows;
  std::vector<std::size_t> used(layers, 0);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::size_t row = used[layer_of[i]]++;
    if (row == rows.size()) rows.emplace_back(layers, zero);
    rows[row][layer_of[i]] = lengths[i];
  }
  for (const std::vector<at::Tensor>& row : rows) sum.add_(at::stack(row).to(at::kDouble).square());
  return sum;
}

}  // namespace spdkfac::kfac
