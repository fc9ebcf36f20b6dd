// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/bench/step_bench.h"

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <optional>

#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include "spdkfac/kfac/symmetric.h"
#include "spdkfac/report/table.h"
#include "spdkfac/runtime/step_meter.h"
#include "spdkfac/trace/breakdown.h"
#include "spdkfac/trace/statistics.h"
#include "spdkfac/train/device.h"

namespace spdkfac::bench {
namespace {

constexpr double kMilli = 1e3;
constexpr std::int64_t kGpuCalls = 3;  // steps beside which the calls alone are measured on a GPU

const std::string& precision_name(Precision precision) {
  return precision_names()[static_cast<std::size_t>(precision)];
}

using Clock = std::chrono::steady_clock;

// What torch's products and factorisations take for the layers of a model, without all else.
class CallsAlone {
 public:
  CallsAlone(const ModelSpec& model, at::Device device) : device_(device) {
    const at::TensorOptions options = at::TensorOptions().device(device);
    std::int64_t largest = 0;
    for (const LayerSpec& layer : model.layers) {
      largest = std::max(largest, std::max(layer.d_a, layer.d_g) * model.batch * layer.positions);
    }
    // As in a step: patches are made for one layer at a time, factors are kept for all.
    const at::Tensor patches = torch::randn({largest}, options);
    for (const LayerSpec& layer : model.layers) {
      for (const std::int64_t dim : {layer.d_a, layer.d_g}) {
        const std::int64_t columns = model.batch * layer.positions;
        factors_.push_back({patches.narrow(0, 0, dim * columns).view({dim, columns}),
                            torch::zeros({dim, dim}, options), torch::eye(dim, options)});
      }
      layers_.push_back({torch::randn({layer.d_g, layer.d_g}, options),
                         torch::randn({layer.d_g, layer.d_a}, options),
                         torch::randn({layer.d_a, layer.d_a}, options)});
    }
  }

  // Runs each part once over all layers and keeps its time.
  void measure() {
    const torch::NoGradGuard no_grad;
    time(Category::kFactorComp, [&] {
      for (Factor& factor : factors_) at::mm_out(factor.sum, factor.rows, factor.rows.t());
    });
    time(Category::kInverseComp, [&] {
      for (const Factor& factor : factors_) {
        at::cholesky_inverse(std::get<0>(at::linalg_cholesky_ex(factor.matrix, /*upper=*/true)),
                             /*upper=*/true);
      }
    });
    time(Category::kPrecondition, [&] {
      for (const auto& [g, gradient, a] : layers_) torch::mm(torch::mm(g, gradient), a);
    });
  }

  std::vector<std::pair<std::string, double>> medians_ms() const {
    std::vector<std::pair<std::string, double>> medians;
    for (const auto& [category, seconds] : seconds_) {
      medians.emplace_back(category_name(category), quantile(seconds, 0.5) * kMilli);
    }
    return medians;
  }

 private:
  struct Factor {
    at::Tensor rows;
    at::Tensor sum;
    at::Tensor matrix;
  };

  template <class Calls>
  void time(Category category, const Calls& calls) {
    train::synchronize(device_);
    const Clock::time_point start = Clock::now();
    calls();
    train::synchronize(device_);
    seconds_[category].push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }

  at::Device device_;
  std::vector<Factor> factors_;
  std::vector<std::array<at::Tensor, 3>> layers_;
  std::map<Category, std::vector<double>> seconds_;
};

std::int64_t peak_bytes(at::Device device) {
  return at::getDeviceAllocator(device.type())
      ->getDeviceStats(device.index())
      .allocated_bytes[0]
      .peak;
}

// What the kinds of work on factors took, by name.
std::map<std::string, double> factor_work(const Trace& trace) {
  std::map<std::string, double> milliseconds;
  for (const TraceEvent& event : trace.events()) {
    if (event.category != Category::kFactorComp) continue;
    const std::string& name = trace.names()[event.name];
    milliseconds["of these " + name.substr(0, name.rfind(' '))] += event.duration.value() * kMilli;
  }
  return milliseconds;
}

std::string methods_text(const std::vector<MeasuredMethod>& methods) {
  Table table({{"convolution's input", Table::Align::kLeft},
               {"kernel"},
               {"padding"},
               {"patches ms"},
               {"shifts ms"}});
  for (const MeasuredMethod& one : methods) {
    table.add_row({fmt::format("{}", fmt::join(one.input, "x")),
                   fmt::format("{}x{}", one.conv.kernel[0], one.conv.kernel[1]),
                   fmt::format("{}x{}", one.conv.padding[0], one.conv.padding[1]),
                   fmt::format("{:.3f}", one.patches_ms), fmt::format("{:.3f}", one.shifts_ms)});
  }
  return table.text();
}

}  // namespace

StepBenchResult bench_step(const StepBenchOptions& options, const ProgressListener& progress) {
  const BenchSetting& setting = options.setting;
  const at::Device device = train::find_device(setting.device);
  if (setting.threads > 0) at::set_num_threads(setting.threads);
  const bool tf32 = options.precision != Precision::kFp32;
  at::globalContext().setAllowTF32CuBLAS(tf32);
  at::globalContext().setAllowTF32CuDNN(tf32);
  at::globalContext().setBenchmarkCuDNN(true);
  const Batch batch = random_batch(setting, device, 1);
  BenchSetting as_it_is = setting;
  as_it_is.recorded = false;
  StepBenchResult result;
  if (!device.is_cpu()) {
    for (const bool second_order : {false, true}) {
      BenchModel model(as_it_is, device, second_order ? std::optional(options.kfac) : std::nullopt);
      model.step(batch, 3);  // the first ones try algorithms, with memory for each
      at::getDeviceAllocator(device.type())->resetPeakStats(device.index());
      model.step(batch);
      (second_order ? result.peak_bytes_kfac : result.peak_bytes_sgd) = peak_bytes(device);
      if (second_order) result.memory = model.kfac().memory();
    }
  }

  KfacOptions watching = options.kfac;
  watching.factor_interval = watching.inverse_interval = kMaxInterval;  // never
  KfacOptions traced = options.kfac;
  traced.trace = true;
  std::vector<std::unique_ptr<BenchModel>> models;
  const auto add = [&](const std::string& name, const std::optional<KfacOptions>& kfac,
                       bool recorded) -> BenchModel& {
    result.variants.push_back({name + (recorded ? " recorded" : ""), {}});
    models.push_back(std::make_unique<BenchModel>(recorded ? setting : as_it_is, device, kfac));
    return *models.back();
  };
  add("sgd", std::nullopt, false);
  if (setting.recorded) add("sgd", std::nullopt, true);
  // The step at which factors would be due, on nothing.
  add("capture", watching, setting.recorded).kfac().step(BenchModel::kLearningRate);
  add("kfac", options.kfac, setting.recorded);
  add("kfac traced", traced, false);
  CallsAlone calls(describe_setting(setting), device);

  if (progress.begin) {
    progress.begin("steps", static_cast<std::size_t>(options.warmup + setting.steps));
  }
  std::vector<std::vector<double>> parts(kCategoryCount);
  std::map<std::string, std::vector<double>> factors;
  for (std::int64_t step = 0; step < options.warmup + setting.steps; ++step) {
    for (std::size_t index = 0; index < models.size(); ++index) {
      const double seconds = models[index]->step(batch, options.in_a_row);
      if (step < options.warmup) continue;
      result.variants[index].seconds.push_back(seconds);
      if (index + 1 < models.size()) continue;
      result.last = StepMeter(models[index]->kfac()).trace();
      const CategoryTimes times = breakdown(result.last, 0);
      for (std::size_t part = 0; part < kCategoryCount; ++part) {
        parts[part].push_back(times[kCategories[part]].value() * kMilli);
      }
      for (const auto& [name, milliseconds] : factor_work(result.last)) {
        factors[name].push_back(milliseconds);
      }
    }
    if (step >= options.warmup && (device.is_cpu() || step < options.warmup + kGpuCalls)) {
      calls.measure();
    }
    if (progress.advance) progress.advance();
  }
  for (std::size_t part = 0; part < kCategoryCount; ++part) {
    const double median = quantile(parts[part], 0.5);
    if (median > 0) result.parts.emplace_back(category_name(kCategories[part]), median);
  }
  for (const auto& [name, milliseconds] : factors) {
    result.parts.emplace_back("  " + name, quantile(milliseconds, 0.5));
  }
  result.calls_alone = calls.medians_ms();
  result.methods = measured_methods();
  return result;
}

std::string to_text(const StepBenchOptions& options, const StepBenchResult& result) {
  std::string text = fmt::format(
      "{}{}; {} steps of each, interleaved, after {} to warm up; "
      "factors every {}, inverses every {} steps\n",
      to_text(options.setting),
      options.setting.device == "cpu" ? fmt::format(" ({} threads)", at::get_num_threads())
                                      : fmt::format(" ({})", precision_name(options.precision)),
      options.setting.steps, options.warmup, options.kfac.factor_interval,
      options.kfac.inverse_interval);
  const double base = quantile(result.variants[0].seconds, 0.5);
  Table times({{"step", Table::Align::kLeft}, {"median ms"}, {"quartiles ms"}, {"x sgd"}});
  for (const StepSamples& variant : result.variants) {
    const Spread spread = spread_of(variant.seconds);
    times.add_row({variant.name, fmt::format("{:.2f}", spread.median * kMilli),
                   fmt::format("{:.2f} to {:.2f}", spread.low * kMilli, spread.high * kMilli),
                   fmt::format("{:.3f}", spread.median / base)});
  }
  Table parts({{"part of a traced step", Table::Align::kLeft}, {"ms"}, {"calls alone ms"}, {"x"}});
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
        "peak memory: sgd {:.0f} MB, kfac {:.0f} MB, {:.2f} x the {:.0f} MB of factors, inverses "
        "and "
        "buffers more\n",
        megabytes(result.peak_bytes_sgd), megabytes(result.peak_bytes_kfac),
        megabytes(result.peak_bytes_kfac - result.peak_bytes_sgd) / megabytes(held.value()),
        megabytes(held.value()));
  }
  return text;
}

Json to_json(const StepBenchOptions& options, const StepBenchResult& result) {
  Json document = to_json(options.setting);
  document["format"] = "spdkfac.bench-step/1";
  document["precision"] = precision_name(options.precision);
  document["kfac"] = digest(options.kfac);
  for (const StepSamples& variant : result.variants)
    document["seconds"][variant.name] = variant.seconds;
  for (const auto& [name, value] : result.parts) document["parts_ms"][name] = value;
  for (const auto& [name, value] : result.calls_alone) document["calls_alone_ms"][name] = value;
  if (result.peak_bytes_kfac > 0) {
    document["peak_bytes"] = {{"sgd", result.peak_bytes_sgd}, {"kfac", result.peak_bytes_kfac}};
  }
  return document;
}

}  // namespace spdkfac::bench
