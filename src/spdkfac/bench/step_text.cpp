// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spdkfac/bench/step_bench.h"
#include "spdkfac/report/record.h"
#include "spdkfac/report/table.h"
#include "spdkfac/trace/statistics.h"

namespace spdkfac::bench {
namespace {

constexpr double kMilliseconds = 1e3;

const std::string& precision_name(Precision precision) {
  return precision_names()[static_cast<std::size_t>(precision)];
}

std::string methods_text(const std::vector<kfac::MeasuredMethod>& methods) {
  report::Table table({{"convolution's input", report::Table::Align::kLeft},
                       {"kernel"},
                       {"padding"},
                       {"patches ms"},
                       {"shifts ms"}});
  for (const kfac::MeasuredMethod& one : methods) {
    table.add_row({fmt::format("{}", fmt::join(one.input, "x")),
                   fmt::format("{}x{}", one.conv.kernel[0], one.conv.kernel[1]),
                   fmt::format("{}x{}", one.conv.padding[0], one.conv.padding[1]),
                   fmt::format("{:.3f}", one.patches_ms), fmt::format("{:.3f}", one.shifts_ms)});
  }
  return table.text();
}

}  // namespace

std::string to_text(const StepBenchOptions& options, const StepBenchResult& result) {
  std::string text = fmt::format(
      "{}{}; {} steps of each in turn, after {} warm-up steps; factors every {}, inverses every {} "
      "steps{}\n",
      to_text(options.setting),
      options.setting.device == "cpu" ? fmt::format(" ({} threads)", at::get_num_threads())
                                      : fmt::format(" ({})", precision_name(options.precision)),
      options.setting.steps, options.warmup, options.kfac.factor_interval,
      options.kfac.inverse_interval, options.kfac.spread_refreshes ? ", refreshes spread" : "");
  const double base = trace::quantile(result.variants[0].seconds, 0.5);
  report::Table times({{"step", report::Table::Align::kLeft},
                       {"median ms"},
                       {"quartiles ms"},
                       {"mean ms"},
                       {"slowest ms"},
                       {"x sgd"}});
  for (const StepSamples& variant : result.variants) {
    const trace::Spread spread = trace::spread_of(variant.seconds);
    const std::vector<double>& all = variant.seconds;
    const double mean = std::reduce(all.begin(), all.end()) / static_cast<double>(all.size());
    times.add_row(
        {variant.name, fmt::format("{:.2f}", spread.median * kMilliseconds),
         fmt::format("{:.2f} to {:.2f}", spread.low * kMilliseconds, spread.high * kMilliseconds),
         fmt::format("{:.2f}", mean * kMilliseconds),
         fmt::format("{:.2f}", *std::max_element(all.begin(), all.end()) * kMilliseconds),
         fmt::format("{:.3f}", spread.median / base)});
  }
  report::Table parts({{"part of a traced step", report::Table::Align::kLeft},
                       {"ms"},
                       {"library calls ms"},
                       {"x"}});
  for (const auto& [name, milliseconds] : result.parts) {
    std::vector<std::string> row = {name, fmt::format("{:.2f}", milliseconds), "", ""};
    for (const auto& [call, calls] : result.calls_alone) {
      if (call != name) continue;
      row[2] = fmt::format("{:.2f}", calls);
      row[3] = fmt::format("{:.2f}", milliseconds / calls);
    }
    parts.add_row(row);
  }
  text += times.text() + "\n" + parts.text();
  if (!result.methods.empty()) text += "\n" + methods_text(result.methods);
  if (result.peak_bytes_kfac > 0) {
    const auto megabytes = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
    const Bytes held = result.memory.factors + result.memory.inverses + result.memory.buffers;
    text += fmt::format(
        "peak memory: sgd {:.0f} MB, kfac {:.0f} MB; the difference is {:.2f} x the {:.0f} MB of "
        "factors, inverses and buffers\n",
        megabytes(result.peak_bytes_sgd), megabytes(result.peak_bytes_kfac),
        megabytes(result.peak_bytes_kfac - result.peak_bytes_sgd) / megabytes(held.value()),
        megabytes(held.value()));
  }
  return text;
}

Json to_json(const StepBenchOptions& options, const StepBenchResult& result) {
  report::RecordHead head;
  head.experiment = "step";
  head.mode = report::RecordMode::kMeasured;
  head.device = options.setting.device;
  head.options = to_json(options.setting);
  head.options["precision"] = precision_name(options.precision);
  head.options["factor_interval"] = options.kfac.factor_interval;
  head.options["inverse_interval"] = options.kfac.inverse_interval;
  Json record = to_json(head);
  record["kfac"] = digest(options.kfac);
  for (const StepSamples& variant : result.variants) {
    record["seconds"][variant.name] = variant.seconds;
  }
  record["parts_ms"] = Json::object();
  for (const auto& [name, value] : result.parts) record["parts_ms"][name] = value;
  record["calls_alone_ms"] = Json::object();
  for (const auto& [name, value] : result.calls_alone) record["calls_alone_ms"][name] = value;
  if (result.peak_bytes_kfac > 0) {
    record["peak_bytes"] = {{"sgd", result.peak_bytes_sgd}, {"kfac", result.peak_bytes_kfac}};
  }
  return record;
}

}  // namespace spdkfac::bench
