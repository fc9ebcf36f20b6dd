// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace spdkfac::runtime {

// The tensor whose place in autograd's graph lasts. A view (as at::linear returns for more than two
// dimensions) gets another place when an activation changes it in place; what it is a view of does
// not.
inline at::Tensor lasting(const at::Tensor& output) {
  if (!output.is_view()) return output;
  const at::Tensor base(output._base());
  const bool same = base.numel() == output.numel() && base.is_contiguous() &&
                    output.is_contiguous() && base.grad_fn() != nullptr;
  return same ? base : output;
}

}  // namespace spdkfac::runtime
