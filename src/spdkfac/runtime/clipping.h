// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace spdkfac::runtime {

// Clips preconditioned gradients by κ: scales those of the parameters `covered`, if they have one.
// `inner` is Σ⟨V, ∇W⟩. Where it or a gradient of `others` is not finite, the step must not change
// the parameters: all gradients are set to zero. Returns whether they were, as a 0-d bool; nothing
// waits for a GPU.
at::Tensor clip_gradients(const at::Tensor& inner, double kl_clip, double learning_rate,
                          const std::vector<at::Tensor>& covered,
                          const std::vector<at::Tensor>& others);

}  // namespace spdkfac::runtime
