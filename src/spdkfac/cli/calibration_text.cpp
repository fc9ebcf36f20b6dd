// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/cli/calibration_text.h"

#include <cmath>

#include <fmt/format.h>

#include "spdkfac/plan/cluster_file.h"
#include "spdkfac/report/cost_curves.h"
#include "spdkfac/report/number_text.h"
#include "spdkfac/report/table.h"

namespace spdkfac::cli {
namespace {

std::string ms(Seconds time) { return report::milliseconds(time, 3); }

void add_fit(report::Table& table, const std::string& what, const std::string& form,
             const std::string& coefficients, const plan::FitQuality& quality, bool chosen) {
  table.add_row({what, form, coefficients, fmt::format("{:.4f}", quality.r_squared),
                 fmt::format("{:.1f}", 100 * quality.max_relative_error), chosen ? "yes" : "-"});
}

std::string fits_text(const calibrate::Calibration& calibration) {
  using Align = report::Table::Align;
  report::Table table({{"cost", Align::kLeft},
                       {"form", Align::kLeft},
                       {"coefficients", Align::kLeft},
                       {"R²"},
                       {"largest error %"},
                       {"in the file"}});
  for (const calibrate::CollectiveFits& fits : calibration.collectives) {
    const std::string name = operation_name(fits.measured.operation);
    const CollectiveCost& affine = fits.affine.model;
    add_fit(table, name, "affine", report::coefficients_text(affine), fits.affine.quality,
            !fits.takes_table());
    add_fit(table, name, "table", report::coefficients_text(fits.table.model), fits.table.quality,
            fits.takes_table());
  }
  const calibrate::InverseFits& inverse = calibration.inverse;
  const ExponentialInverse& exponential = inverse.exponential.model;
  add_fit(table, "inverse", "exponential", report::coefficients_text(exponential),
          inverse.exponential.quality, false);
  const CubicInverse& cubic = inverse.cubic.model;
  add_fit(table, "inverse", "cubic", report::coefficients_text(cubic), inverse.cubic.quality,
          !inverse.takes_table());
  add_fit(table, "inverse", "table", report::coefficients_text(inverse.table.model),
          inverse.table.quality, inverse.takes_table());
  return table.text();
}

std::string collectives_text(const calibrate::Calibration& calibration) {
  if (calibration.collectives.empty()) {
    return "One rank: collectives cost nothing. Start the program with mpirun to measure them.\n";
  }
  std::vector<report::Table::Column> columns{{"elements"}};
  for (const calibrate::CollectiveFits& fits : calibration.collectives) {
    columns.push_back({fmt::format("{} ms", operation_name(fits.measured.operation))});
  }
  columns.push_back({"all_reduce bus MB/s"});
  report::Table table(std::move(columns));
  const auto& all_reduce = calibration.collectives.front().measured.times;
  const double ranks = calibration.costs.world;
  for (std::size_t i = 0; i < all_reduce.size(); ++i) {
    std::vector<std::string> cells{fmt::format("{:.0f}", all_reduce[i].size)};
    for (const calibrate::CollectiveFits& fits : calibration.collectives) {
      cells.push_back(ms(fits.measured.times[i].time));
    }
    // What each rank sends at least, in a second.
    const double bytes = 2 * (ranks - 1) / ranks * kBytesPerElement * all_reduce[i].size;
    cells.push_back(fmt::format("{:.1f}", 1e-6 * bytes / all_reduce[i].time.value()));
    table.add_row(std::move(cells));
  }
  return table.text();
}

std::string inverse_text(const calibrate::InverseFits& inverse) {
  report::Table table({{"dimension"}, {"inverse ms"}, {"cubic ms"}, {"exponential ms"}});
  for (const plan::Measurement& one : inverse.measured) {
    const std::int64_t dim = std::llround(one.size);
    table.add_row({fmt::format("{}", dim), ms(one.time), ms(inverse_time(inverse.cubic.model, dim)),
                   ms(inverse_time(inverse.exponential.model, dim))});
  }
  return table.text();
}

std::string rates_text(const CostModel& costs) {
  report::Table table(
      {{"what", report::Table::Align::kLeft}, {"measured"}, {"unit", report::Table::Align::kLeft}});
  const auto rate = [](FlopsPerSecond value) {
    return fmt::format("{:.2f}", 1e-9 * value.value());
  };
  table.add_row({"forward", rate(costs.compute->forward), "Gflop/s"});
  table.add_row({"factor", rate(costs.compute->factor), "Gflop/s"});
  table.add_row({"precondition", rate(costs.compute->precondition), "Gflop/s"});
  const Overheads& overheads = costs.overheads;
  const auto row = [&](const char* name, double value, const char* unit) {
    table.add_row({name, fmt::format("{:.3f}", value), unit});
  };
  row("host_per_tensor", 1e6 * overheads.host_per_tensor.value(), "µs");
  row("pack_per_element", 1e9 * overheads.pack_per_element.value(), "ns");
  row("unpack_per_element", 1e9 * overheads.unpack_per_element.value(), "ns");
  row("compute_rate_under_communication", overheads.compute_rate_under_communication, "of 1");
  row("communication_rate_under_computation", overheads.communication_rate_under_computation,
      "of 1");
  return table.text();
}

template <class Model>
Json fit_json(const plan::Fit<Model>& fit, Json coefficients) {
  coefficients["r_squared"] = fit.quality.r_squared;
  coefficients["max_relative_error"] = fit.quality.max_relative_error;
  return coefficients;
}

}  // namespace

std::string duration_text(Seconds time) {
  constexpr double kMinute = 60;
  if (time.value() < 1.5 * kMinute) return fmt::format("{:.0f} s", std::ceil(time.value()));
  return fmt::format("{:.1f} min", time.value() / kMinute);
}

std::string to_text(const calibrate::Calibration& calibration) {
  const CostModel& costs = calibration.costs;
  return fmt::format(
      "{}, {} {} on {} {}, {} ({} {} each), in {}\n\n{}\n{}\n{}\n{}", costs.name, costs.world,
      costs.world == 1 ? "rank" : "ranks", calibration.machine.host_count(),
      calibration.machine.host_count() == 1 ? "host" : "hosts", calibration.machine.device,
      calibration.machine.threads, calibration.machine.threads == 1 ? "thread" : "threads",
      duration_text(calibration.elapsed), collectives_text(calibration),
      inverse_text(calibration.inverse), rates_text(costs), fits_text(calibration));
}

Json to_json(const calibrate::Calibration& calibration) {
  Json collectives = Json::object();
  for (const calibrate::CollectiveFits& fits : calibration.collectives) {
    const CollectiveCost& affine = fits.affine.model;
    collectives[operation_name(fits.measured.operation)] = {
        {"measured", report::points_json(fits.measured.times)},
        {"affine", fit_json(fits.affine,
                            {{"alpha", affine.alpha().value()}, {"beta", affine.beta().value()}})},
        {"table", fit_json(fits.table, Json::object())},
        {"chosen", fits.takes_table() ? "table" : "affine"}};
  }
  const calibrate::InverseFits& inverse = calibration.inverse;
  const ExponentialInverse& exponential = inverse.exponential.model;
  const CubicInverse& cubic = inverse.cubic.model;
  return {{"format", "spdkfac.calibration/1"},
          {"estimate", calibration.estimate.value()},
          {"elapsed", calibration.elapsed.value()},
          {"collectives", std::move(collectives)},
          {"inverse",
           {{"measured", report::points_json(inverse.measured)},
            {"exponential", fit_json(inverse.exponential,
                                     {{"alpha", exponential.alpha}, {"beta", exponential.beta}})},
            {"cubic",
             fit_json(inverse.cubic,
                      {{"c0", cubic.c0}, {"c1", cubic.c1}, {"c2", cubic.c2}, {"c3", cubic.c3}})},
            {"table", fit_json(inverse.table, Json::object())},
            {"chosen", inverse.takes_table() ? "table" : "cubic"}}},
          {"cluster", spdkfac::to_json(calibration.costs)}};
}

}  // namespace spdkfac::cli
