// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/drift.h"

#include <ATen/ATen.h>

namespace spdkfac::kfac {
namespace {

constexpr double kLargestChange = 1e30;  // finite, so that states can hold it

at::Tensor diagonal_of(const at::Tensor& factor) { return factor.diagonal(0, -2, -1); }

std::vector<at::Tensor> diagonals_of(const std::vector<at::Tensor>& factors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& factor : factors) {
    result.push_back(diagonal_of(factor).reshape({-1}).to(at::kDouble));
  }
  return result;
}

}  // namespace

void keep_diagonals(const std::vector<at::Tensor>& factors,
                    const std::vector<at::Tensor>& diagonals) {
  for (std::size_t i = 0; i < factors.size(); ++i) {
    at::Tensor(diagonals[i]).copy_(diagonal_of(factors[i]));
  }
}

at::Tensor relative_changes(const std::vector<at::Tensor>& factors,
                            const std::vector<at::Tensor>& diagonals) {
  std::vector<at::Tensor> before;
  for (const at::Tensor& one : diagonals) before.push_back(one.reshape({-1}).to(at::kDouble));
  const std::vector<at::Tensor> moved = at::_foreach_sub(diagonals_of(factors), before);
  const at::Tensor quotients =
      at::stack(at::_foreach_norm(moved)) / at::stack(at::_foreach_norm(before));
  return quotients.nan_to_num(0, kLargestChange, 0).clamp_max(kLargestChange);
}

}  // namespace spdkfac::kfac
