// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spdkfac/base/json.h"
#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/fit.h"
#include "spdkfac/report/record.h"

namespace spdkfac::report {

// A form that was fitted to measurements, or a cost of a cluster file.
struct FittedForm {
  std::string form;
  std::string text;                      // its coefficients
  std::optional<double> r_squared;       // nothing without measurements
  std::optional<double> mean_residual;   // mean absolute error, relative
  bool used = true;                      // forecasts take this one
  std::vector<plan::Measurement> curve;  // its values
};

// What one operation costs by its size.
struct CostCurve {
  std::string name;
  std::string unit;  // of the size: elements or dim
  std::vector<plan::Measurement> points;
  std::vector<FittedForm> forms;
};

// The experiments `comm` and `inverse`.
struct CostCurves {
  RecordHead head;
  std::vector<CostCurve> curves;
  bool has_threshold = false;  // the question has been asked
  // The largest dimension whose inverse is cheaper to compute than to receive.
  std::optional<std::int64_t> threshold;
};

std::string to_text(const CostCurves& curves);
// A record (docs/records.md).
Json to_json(const CostCurves& curves);

// The coefficients of a form, for people.
std::string coefficients_text(const CollectiveCost& affine);
std::string coefficients_text(const ExponentialInverse& exponential);
std::string coefficients_text(const CubicInverse& cubic);
std::string coefficients_text(const CostTable& table);
// [[size, seconds], …]
Json points_json(const std::vector<plan::Measurement>& measurements);

}  // namespace spdkfac::report
