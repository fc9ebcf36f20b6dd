// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spdkfac/kfac/patches.h"

namespace spdkfac::kfac {

// How the factor A of a convolution is computed (patches.h, shifts.h).
enum class ProductMethod { kPatches, kShifts };

// The method for such a call. On the CPU, and where torch was told to be deterministic, by the work
// that they do. On a GPU both are run a few times when a shape is first seen (`run` computes the
// factor with one), and the faster one is remembered in the process; the host waits then, and only
// then.
ProductMethod product_method(const at::Tensor& input, const ConvGeometry& conv,
                             const std::function<void(ProductMethod)>& run);

// What was measured so far, for reports.
struct MeasuredMethod {
  std::vector<std::int64_t> input;
  ConvGeometry conv;
  bool channels_last = false;
  double patches_ms = 0;
  double shifts_ms = 0;
};
std::vector<MeasuredMethod> measured_methods();

}  // namespace spdkfac::kfac
