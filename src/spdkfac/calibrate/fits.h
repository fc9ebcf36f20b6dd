// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "spdkfac/calibrate/collectives.h"
#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/fit.h"

namespace spdkfac::calibrate {

// A smooth form evens out noise and goes on behind the last point, so it is preferred as long as no
// measured point is further from it than this; beyond, the misfit is the form's, not the noise's.
constexpr double kMaxSmoothError = 0.15;

// One collective: the paper's form, and the table.
struct CollectiveFits {
  CollectiveTimes measured;
  plan::Fit<CollectiveCost> affine;
  plan::Fit<CostTable> table;

  bool takes_table() const { return affine.quality.max_relative_error > kMaxSmoothError; }
  CollectiveCost chosen() const;
};
CollectiveFits fit_collective_times(const CollectiveTimes& times);

// The inverse: the paper's form, and those that cluster files get.
struct InverseFits {
  std::vector<plan::Measurement> measured;
  plan::Fit<ExponentialInverse> exponential;
  plan::Fit<CubicInverse> cubic;
  plan::Fit<CostTable> table;

  // A polynomial without its cube would promise too much for larger dimensions.
  bool takes_table() const {
    return cubic.quality.max_relative_error > kMaxSmoothError || cubic.model.c3 <= 0;
  }
  // Behind the last measured dimension the table goes on with the cube of the dimension.
  InverseCost chosen() const;
};
InverseFits fit_inverse_times(const std::vector<plan::Measurement>& times);

}  // namespace spdkfac::calibrate
