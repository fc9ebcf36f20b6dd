// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/report/cost_curves.h"

#include <utility>

#include <fmt/format.h>

#include "spdkfac/report/number_text.h"

namespace spdkfac::report {
namespace {

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json form_json(const FittedForm& form) {
  return {{"form", form.form},
          {"text", form.text},
          {"r2", or_null(form.r_squared)},
          {"mean_residual", or_null(form.mean_residual)},
          {"used", form.used},
          {"curve", points_json(form.curve)}};
}

}  // namespace

Json to_json(const CostCurves& curves) {
  Json record = to_json(curves.head);
  record["curves"] = Json::array();
  for (const CostCurve& curve : curves.curves) {
    Json forms = Json::array();
    for (const FittedForm& form : curve.forms) forms.push_back(form_json(form));
    record["curves"].push_back({{"name", curve.name},
                                {"unit", curve.unit},
                                {"points", points_json(curve.points)},
                                {"fits", std::move(forms)}});
  }
  if (curves.has_threshold) {
    record["threshold"] = curves.threshold ? Json(*curves.threshold) : Json();
  }
  return record;
}

std::string to_text(const CostCurves& curves) {
  std::string text;
  for (const CostCurve& curve : curves.curves) {
    for (const FittedForm& form : curve.forms) {
      const plan::Measurement& last = form.curve.back();
      text += fmt::format(
          "{:<11} {:<13} {:<40} R² {:<7} mean error {:>6} %   {:.0f} {}: {} ms\n", curve.name,
          form.form, form.text, form.r_squared ? fmt::format("{:.4f}", *form.r_squared) : "-",
          form.mean_residual ? fmt::format("{:.1f}", 100 * *form.mean_residual) : "-", last.size,
          curve.unit, milliseconds(last.time, 3));
    }
  }
  if (!curves.has_threshold) return text;
  return text +
         (curves.threshold
              ? fmt::format(
                    "up to dimension {}, computing an inverse is cheaper than receiving it\n",
                    *curves.threshold)
              : "no inverse is cheaper to compute than to receive\n");
}

Json points_json(const std::vector<plan::Measurement>& measurements) {
  Json points = Json::array();
  for (const plan::Measurement& one : measurements) points.push_back({one.size, one.time.value()});
  return points;
}

std::string coefficients_text(const CollectiveCost& affine) {
  return fmt::format("α {:.3f} ms, β {:.3f} ms a million", 1e3 * affine.alpha().value(),
                     1e9 * affine.beta().value());
}

std::string coefficients_text(const ExponentialInverse& exponential) {
  return fmt::format("α {:.3f} ms, β {:.3g}", 1e3 * exponential.alpha, exponential.beta);
}

std::string coefficients_text(const CubicInverse& cubic) {
  return fmt::format("{:.2g} {:.2g} {:.2g} {:.2g}", cubic.c0, cubic.c1, cubic.c2, cubic.c3);
}

std::string coefficients_text(const CostTable& table) {
  return fmt::format("{} points", table.points().size());
}

}  // namespace spdkfac::report
