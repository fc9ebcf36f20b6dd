// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/bench/fit_bench.h"

#include <cmath>
#include <functional>
#include <utility>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/calibrate/calibration.h"
#include "spdkfac/train/device.h"
#include "spdkfac/train/ranks.h"
#include "spdkfac/train/train_planner.h"

namespace spdkfac::bench {
namespace {

// The largest messages on a slow link, and ranks that wait for the last one's largest inversion.
constexpr std::int64_t kLongestWaitSeconds = 600;
// A few inversions, which a calibration always has.
constexpr std::int64_t kFewDims = 256;

using Cost = std::function<Seconds(double size)>;

// A form at some sizes between the first and the last, each a twelfth of an octave on.
std::vector<plan::Measurement> curve_of(double first, double last, const Cost& time) {
  std::vector<plan::Measurement> curve;
  const double ratio = std::pow(2.0, 1.0 / 12);
  for (double size = first; size < last; size *= ratio) {
    const double rounded = std::round(size);
    curve.push_back({rounded, time(rounded)});
  }
  curve.push_back({last, time(last)});
  return curve;
}

double mean_residual(const std::vector<plan::Measurement>& measured,
                     const plan::FitQuality& quality) {
  double sum = 0;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    sum += std::abs(quality.residuals[i] / measured[i].time);
  }
  return sum / static_cast<double>(measured.size());
}

report::FittedForm form_of(const char* form, std::string text,
                           const std::vector<plan::Measurement>& measured,
                           const plan::FitQuality& quality, bool used, const Cost& time) {
  return {.form = form,
          .text = std::move(text),
          .r_squared = quality.r_squared,
          .mean_residual = mean_residual(measured, quality),
          .used = used,
          .curve = curve_of(measured.front().size, measured.back().size, time)};
}

Cost time_of(const CollectiveCost& cost) {
  return [cost](double size) { return cost.time(std::llround(size)); };
}

Cost time_of(const InverseCost& cost) {
  return [cost](double dim) { return inverse_time(cost, std::llround(dim)); };
}

report::CostCurve collective_curve(const calibrate::CollectiveFits& fits) {
  const std::vector<plan::Measurement>& measured = fits.measured.times;
  const CollectiveCost& affine = fits.affine.model;
  return {.name = operation_name(fits.measured.operation),
          .unit = "elements",
          .points = measured,
          .forms = {form_of("affine", report::coefficients_text(affine), measured,
                            fits.affine.quality, !fits.takes_table(), time_of(affine)),
                    form_of("table", report::coefficients_text(fits.table.model), measured,
                            fits.table.quality, fits.takes_table(),
                            time_of(CollectiveCost(fits.table.model)))}};
}

report::CostCurve inverse_curve(const calibrate::InverseFits& fits) {
  const ExponentialInverse& exponential = fits.exponential.model;
  const CubicInverse& cubic = fits.cubic.model;
  const CostTable& table = fits.table.model;
  return {.name = "inverse",
          .unit = "dim",
          .points = fits.measured,
          .forms = {form_of("exponential", report::coefficients_text(exponential), fits.measured,
                            fits.exponential.quality, false, time_of(InverseCost(exponential))),
                    form_of("cubic", report::coefficients_text(cubic), fits.measured,
                            fits.cubic.quality, !fits.takes_table(), time_of(InverseCost(cubic))),
                    form_of("table", report::coefficients_text(table), fits.measured,
                            fits.table.quality, fits.takes_table(), time_of(InverseCost(table)))}};
}

// A cost of a cluster file, without the measurements that it was made from.
report::CostCurve plain_curve(const char* name, const char* unit, double first, double last,
                              const Cost& time) {
  return {.name = name,
          .unit = unit,
          .points = {},
          .forms = {{.form = "cluster file",
                     .text = "",
                     .r_squared = std::nullopt,
                     .mean_residual = std::nullopt,
                     .used = true,
                     .curve = curve_of(first, last, time)}}};
}

report::CostCurve broadcast_of_inverse(const CostModel& costs, double first, double last) {
  return plain_curve("broadcast", "dim", first, last, [&](double dim) {
    return costs.broadcast.time(packed_elements(std::llround(dim)));
  });
}

std::optional<std::int64_t> threshold(const CostModel& costs, std::int64_t max_dim) {
  if (costs.world == 1) return std::nullopt;
  for (std::int64_t dim = max_dim; dim > 0; --dim) {
    if (costs.inverse_time(dim) < costs.broadcast.time(packed_elements(dim))) return dim;
  }
  return std::nullopt;
}

report::RecordHead head_of(const FitBenchOptions& options) {
  report::RecordHead head;
  head.experiment = options.inverse ? "inverse" : "comm";
  return head;
}

report::CostCurves curves_of(const FitBenchOptions& options,
                             const calibrate::Calibration& calibration) {
  report::CostCurves result;
  if (!options.inverse) {
    for (const calibrate::CollectiveFits& fits : calibration.collectives) {
      result.curves.push_back(collective_curve(fits));
    }
    return result;
  }
  const std::vector<plan::Measurement>& measured = calibration.inverse.measured;
  result.curves.push_back(inverse_curve(calibration.inverse));
  if (calibration.costs.world > 1) {
    result.curves.push_back(
        broadcast_of_inverse(calibration.costs, measured.front().size, measured.back().size));
  }
  result.has_threshold = true;
  result.threshold = threshold(calibration.costs, options.max_dim);
  return result;
}

}  // namespace

report::CostCurves simulate_fits(const FitBenchOptions& options) {
  const CostModel costs = train::simulated_cluster(options.ranks);
  report::CostCurves result;
  result.head = head_of(options);
  result.head.cluster = costs.name;
  if (options.inverse) {
    const auto largest = static_cast<double>(options.max_dim);
    result.curves.push_back(
        plain_curve("inverse", "dim", calibrate::kSmallestDim, largest,
                    [&](double dim) { return costs.inverse_time(std::llround(dim)); }));
    result.curves.push_back(broadcast_of_inverse(costs, calibrate::kSmallestDim, largest));
    result.has_threshold = true;
    result.threshold = threshold(costs, options.max_dim);
    return result;
  }
  const auto add = [&](const char* name, const CollectiveCost& cost) {
    result.curves.push_back(plain_curve(name, "elements", calibrate::kSmallestMessage,
                                        static_cast<double>(options.max_elements), time_of(cost)));
  };
  add("all_reduce", costs.all_reduce);
  add("reduce", costs.reduce);
  add("broadcast", costs.broadcast);
  return result;
}

std::optional<report::CostCurves> measure_fits(const FitBenchOptions& options,
                                               const ProgressListener& progress) {
  const c10::Device device = train::find_device(options.device);
  if (options.threads > 0) at::set_num_threads(options.threads);
  train::RankOptions rank_options = options.ranks;
  rank_options.timeout_seconds = kLongestWaitSeconds;
  const train::Ranks ranks(rank_options, device);
  if (ranks.alone() && !options.inverse) {
    throw ConfigError("bench comm: needs several ranks; start the program with mpirun -n P");
  }
  calibrate::CalibrationOptions calibration_options = calibrate::full_calibration(device);
  calibration_options.repetitions = options.repetitions;
  calibration_options.max_dim = options.inverse ? options.max_dim : kFewDims;
  calibration_options.max_elements =
      options.inverse ? packed_elements(options.max_dim) : options.max_elements;
  calibrate::CalibrationObserver observer;
  if (ranks.first()) {
    observer.begin = [&](Seconds, std::size_t samples) {
      if (progress.begin) progress.begin("measuring", samples);
    };
    observer.advance = progress.advance;
  }
  const calibrate::Calibration calibration =
      calibrate::calibrate(*ranks.communicator(), device, calibration_options, observer);
  if (!ranks.first()) return std::nullopt;
  report::CostCurves result = curves_of(options, calibration);
  result.head = head_of(options);
  result.head.mode = report::RecordMode::kMeasured;
  result.head.device = fmt::format("{}, {} ranks, {} threads per rank", calibration.machine.device,
                                   ranks.size(), calibration.machine.threads);
  return result;
}

}  // namespace spdkfac::bench
