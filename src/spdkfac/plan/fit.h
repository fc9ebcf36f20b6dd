// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "spdkfac/plan/cost_model.h"

namespace spdkfac::plan {

// One measurement: a size (elements, or a dimension) and its seconds.
struct Measurement {
  double size = 0;
  Seconds time;
};

// How well a form describes the measurements it was fitted to.
struct FitQuality {
  std::vector<Seconds> residuals;  // measured − fitted, in the order of the measurements
  double r_squared = 0;            // 1 − Σ residual² / Σ (measured − mean)²
  double max_relative_error = 0;   // of |residual| / measured
};

template <class Model>
struct Fit {
  Model model;
  FitQuality quality;
};

// Least squares on relative errors, so that small sizes count as much as large ones. Every fit
// needs at least as many different sizes as it has coefficients, and positive finite times;
// otherwise a ConfigError says what is missing. Coefficients of the collective and of the cubic
// are never negative: where the best one would be, it is 0 and the others are fitted without it.
Fit<CollectiveCost> fit_collective(std::span<const Measurement> measurements);
Fit<ExponentialInverse> fit_exponential(
    std::span<const Measurement> measurements);  // in logarithms
Fit<CubicInverse> fit_cubic(std::span<const Measurement> measurements);
// Median per size, made non-decreasing by pooling neighbours (isotonic regression).
Fit<CostTable> fit_table(std::span<const Measurement> measurements);

}  // namespace spdkfac::plan
