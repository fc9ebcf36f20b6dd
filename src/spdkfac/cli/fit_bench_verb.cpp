// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <functional>
#include <memory>
#include <optional>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/calibrate/calibration.h"
#include "spdkfac/cli/calibration_text.h"
#include "spdkfac/cli/on_ranks.h"
#include "spdkfac/cli/output.h"
#include "spdkfac/cli/verbs.h"
#include "spdkfac/report/record.h"
#include "spdkfac/train/device.h"
#include "spdkfac/train/ranks.h"
#include "spdkfac/train/train_planner.h"

namespace spdkfac::cli {
namespace {

constexpr std::int64_t kPatience = 600;
// A few inversions, and a few messages, which a calibration always has.
constexpr std::int64_t kFewDims = 256;

struct FitBenchFlags {
  bool inverse = false;  // else: comm
  std::int64_t max_elements = std::int64_t{1} << 22;
  std::int64_t max_dim = 2048;
  int repetitions = 10;
  std::string device = "cpu";
  int threads = 0;
  train::RankOptions ranks;
  bool simulate = false;
  std::string out;
  bool json = false;
};

// A form at some sizes between the first and the last, each a twelfth of an octave on.
Json curve_of(double first, double last, const std::function<Seconds(double)>& time) {
  Json curve = Json::array();
  const double ratio = std::pow(2.0, 1.0 / 12);
  for (double size = first; size < last; size *= ratio) {
    const double rounded = std::round(size);
    curve.push_back({rounded, time(rounded).value()});
  }
  curve.push_back({last, time(last).value()});
  return curve;
}

double mean_residual(const std::vector<Measurement>& measured, const FitQuality& quality) {
  double sum = 0;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    sum += std::abs(quality.residuals[i] / measured[i].time);
  }
  return sum / static_cast<double>(measured.size());
}

Json fit_of(const char* form, const std::string& text, const std::vector<Measurement>& measured,
            const FitQuality& quality, bool used, const std::function<Seconds(double)>& time) {
  return {{"form", form},
          {"text", text},
          {"r2", quality.r_squared},
          {"mean_residual", mean_residual(measured, quality)},
          {"used", used},
          {"curve", curve_of(measured.front().size, measured.back().size, time)}};
}

Json collective_curve(const CollectiveFits& fits) {
  const std::vector<Measurement>& measured = fits.measured.times;
  const CollectiveCost& affine = fits.affine.model;
  const CollectiveCost table = CollectiveCost(fits.table.model);
  const auto time_of = [](const CollectiveCost& cost) {
    return [cost](double size) { return cost.time(std::llround(size)); };
  };
  return {{"name", operation_name(fits.measured.operation)},
          {"unit", "elements"},
          {"points", points_json(measured)},
          {"fits",
           {fit_of("affine", coefficients_text(affine), measured, fits.affine.quality,
                   !fits.takes_table(), time_of(affine)),
            fit_of("table", coefficients_text(fits.table.model), measured, fits.table.quality,
                   fits.takes_table(), time_of(table))}}};
}

Json inverse_curve(const InverseFits& fits) {
  const auto time_of = [](const InverseCost& cost) {
    return [cost](double dim) { return inverse_time(cost, std::llround(dim)); };
  };
  const ExponentialInverse& exponential = fits.exponential.model;
  const CubicInverse& cubic = fits.cubic.model;
  return {{"name", "inverse"},
          {"unit", "dim"},
          {"points", points_json(fits.measured)},
          {"fits",
           {fit_of("exponential", coefficients_text(exponential), fits.measured,
                   fits.exponential.quality, false, time_of(exponential)),
            fit_of("cubic", coefficients_text(cubic), fits.measured, fits.cubic.quality,
                   !fits.takes_table(), time_of(cubic)),
            fit_of("table", coefficients_text(fits.table.model), fits.measured, fits.table.quality,
                   fits.takes_table(), time_of(fits.table.model))}}};
}

// A cost of a cluster file, without the measurements that it was made from.
Json plain_curve(const char* name, const char* unit, double first, double last,
                 const std::function<Seconds(double)>& time) {
  return {{"name", name},
          {"unit", unit},
          {"points", Json::array()},
          {"fits",
           {{{"form", "cluster file"},
             {"text", ""},
             {"r2", nullptr},
             {"mean_residual", nullptr},
             {"used", true},
             {"curve", curve_of(first, last, time)}}}}};
}

Json broadcast_of_inverse(const CostModel& costs, double first, double last) {
  return plain_curve("broadcast", "dim", first, last, [&](double dim) {
    return costs.broadcast.time(packed_elements(std::llround(dim)));
  });
}

// The largest dimension whose inverse is cheaper to compute than to receive.
Json threshold(const CostModel& costs, std::int64_t max_dim) {
  if (costs.world == 1) return nullptr;
  for (std::int64_t dim = max_dim; dim > 0; --dim) {
    if (costs.inverse_time(dim) < costs.broadcast.time(packed_elements(dim))) return dim;
  }
  return nullptr;
}

void add_curves(Json& record, const FitBenchFlags& flags, const Calibration& calibration) {
  record["curves"] = Json::array();
  if (!flags.inverse) {
    for (const CollectiveFits& fits : calibration.collectives) {
      record["curves"].push_back(collective_curve(fits));
    }
    return;
  }
  const std::vector<Measurement>& measured = calibration.inverse.measured;
  record["curves"].push_back(inverse_curve(calibration.inverse));
  if (calibration.costs.world > 1) {
    record["curves"].push_back(
        broadcast_of_inverse(calibration.costs, measured.front().size, measured.back().size));
  }
  record["threshold"] = threshold(calibration.costs, flags.max_dim);
}

void add_simulated_curves(Json& record, const FitBenchFlags& flags, const CostModel& costs) {
  const auto largest = static_cast<double>(flags.max_dim);
  record["curves"] = Json::array();
  if (flags.inverse) {
    record["curves"].push_back(
        plain_curve("inverse", "dim", kSmallestDim, largest,
                    [&](double dim) { return costs.inverse_time(std::llround(dim)); }));
    record["curves"].push_back(broadcast_of_inverse(costs, kSmallestDim, largest));
    record["threshold"] = threshold(costs, flags.max_dim);
    return;
  }
  const auto add = [&](const char* name, const CollectiveCost& cost) {
    record["curves"].push_back(
        plain_curve(name, "elements", kSmallestMessage, static_cast<double>(flags.max_elements),
                    [&](double elements) { return cost.time(std::llround(elements)); }));
  };
  add("all_reduce", costs.all_reduce);
  add("reduce", costs.reduce);
  add("broadcast", costs.broadcast);
}

// Points at powers of two of what a cluster file says, for people.
std::string curves_text(const Json& record) {
  std::string text;
  for (const Json& curve : record.at("curves")) {
    for (const Json& fit : curve.at("fits")) {
      const Json& last = fit.at("curve").back();
      text += fmt::format(
          "{:<11} {:<13} {:<40} R² {:<7} mean error {:>6} %   {:.0f} {}: {:.3f} ms\n",
          curve.at("name").get<std::string>(), fit.at("form").get<std::string>(),
          fit.at("text").get<std::string>(),
          fit.at("r2").is_null() ? "-" : fmt::format("{:.4f}", fit.at("r2").get<double>()),
          fit.at("mean_residual").is_null()
              ? "-"
              : fmt::format("{:.1f}", 100 * fit.at("mean_residual").get<double>()),
          last.at(0).get<double>(), curve.at("unit").get<std::string>(),
          1e3 * last.at(1).get<double>());
    }
  }
  if (record.contains("threshold")) {
    text +=
        record.at("threshold").is_null()
            ? "there is no dimension whose inverse is cheaper to compute than to receive\n"
            : fmt::format("up to dimension {} an inverse is cheaper to compute than to receive\n",
                          record.at("threshold").get<std::int64_t>());
  }
  return text;
}

void finish(const FitBenchFlags& flags, const Json& record) {
  if (!flags.out.empty()) write_file_atomically(flags.out, record.dump(1) + "\n");
  if (flags.json) {
    print_json(record);
  } else {
    print(curves_text(record));
  }
}

void run_simulated(const FitBenchFlags& flags, RecordHead head) {
  const CostModel costs = train::simulated_cluster(flags.ranks);
  head.cluster = costs.name;
  Json record = to_json(head);
  add_simulated_curves(record, flags, costs);
  finish(flags, record);
}

void run_measured(const FitBenchFlags& flags, RecordHead head) {
  const c10::Device device = train::find_device(flags.device);
  if (flags.threads > 0) at::set_num_threads(flags.threads);
  train::RankOptions rank_options = flags.ranks;
  rank_options.timeout_seconds = kPatience;
  const train::Ranks ranks(rank_options, device);
  if (ranks.alone() && !flags.inverse) {
    throw ConfigError("bench comm: there is one rank; start the program by mpirun -n P");
  }
  CalibrationOptions options = full_calibration(device);
  options.repetitions = flags.repetitions;
  options.max_dim = flags.inverse ? flags.max_dim : kFewDims;
  options.max_elements = flags.inverse ? packed_elements(flags.max_dim) : flags.max_elements;
  std::optional<Progress> progress;
  CalibrationObserver observer;
  if (ranks.first()) {
    observer.begin = [&](Seconds, std::size_t samples) { progress.emplace("measuring", samples); };
    observer.advance = [&] { progress->advance(); };
  }
  const Calibration calibration = calibrate(*ranks.communicator(), device, options, observer);
  progress.reset();
  if (!ranks.first()) return;
  head.mode = RecordMode::kMeasured;
  head.device = fmt::format("{}, {} ranks, {} threads a rank", calibration.machine.device,
                            ranks.size(), calibration.machine.threads);
  Json record = to_json(head);
  add_curves(record, flags, calibration);
  finish(flags, record);
}

void run_fit_bench(const FitBenchFlags& flags) {
  RecordHead head;
  head.experiment = flags.inverse ? "inverse" : "comm";
  run_on_ranks([&] { (flags.simulate ? run_simulated : run_measured)(flags, head); });
}

void add_fit_bench(CLI::App& bench, bool inverse) {
  CLI::App* verb =
      inverse ? bench.add_subcommand("inverse", "Inversions, fitted, and against broadcasts")
              : bench.add_subcommand("comm", "Collectives by size, fitted (under mpirun)");
  const auto flags = std::make_shared<FitBenchFlags>();
  flags->inverse = inverse;
  if (inverse) {
    verb->add_option("--max-dim", flags->max_dim, "Largest inversion; default 2048")
        ->check(CLI::Range(std::int64_t{256}, std::int64_t{32768}));
  } else {
    verb->add_option("--max-elements", flags->max_elements, "Largest message; default 4194304")
        ->check(CLI::Range(std::int64_t{4096}, std::int64_t{1} << 31));
  }
  verb->add_option("--repetitions", flags->repetitions, "Samples of each; default 10")
      ->check(CLI::Range(1, 10'000));
  verb->add_option("--device", flags->device, "cpu (default) or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  verb->add_option("--backend", flags->ranks.backend, "mpi (default) or nccl")
      ->check(CLI::IsMember({"mpi", "nccl"}));
  verb->add_option("--threads", flags->threads, "Of the CPU; default: torch's choice")
      ->check(CLI::Range(1, 4096));
  verb->add_flag("--simulate", flags->simulate, "What a cluster file says, instead of measuring");
  auto* cluster = verb->add_option("--cluster", flags->ranks.cluster,
                                   "Of the data; with --simulate default paper-64x2080ti");
  verb->add_option("--cluster-file", flags->ranks.cluster_file, "Of 'spdkfac calibrate', instead")
      ->excludes(cluster);
  verb->add_option("--out", flags->out, "Write the record here, for 'spdkfac report'");
  verb->add_flag("--json", flags->json, "Print the record");
  verb->callback([flags] { run_fit_bench(*flags); });
}

}  // namespace

void add_fit_benches(CLI::App& bench) {
  add_fit_bench(bench, /*inverse=*/false);
  add_fit_bench(bench, /*inverse=*/true);
}

}  // namespace spdkfac::cli
