// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/bench/step_bench.h"

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <optional>

#include <c10/core/CachingDeviceAllocator.h>
#include <torch/torch.h>

#include "spdkfac/calibrate/timing.h"
#include "spdkfac/kfac/symmetric.h"
#include "spdkfac/runtime/step_meter.h"
#include "spdkfac/trace/breakdown.h"
#include "spdkfac/trace/statistics.h"
#include "spdkfac/train/device.h"

namespace spdkfac::bench {
namespace {

constexpr double kMilli = 1e3;
constexpr std::int64_t kGpuCalls = 3;  // steps beside which the calls alone are measured on a GPU

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
      medians.emplace_back(category_name(category), trace::quantile(seconds, 0.5) * kMilli);
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
    calibrate::wait_for_device(device_);
    const Clock::time_point start = Clock::now();
    calls();
    calibrate::wait_for_device(device_);
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

}  // namespace

StepBenchResult bench_step(const StepBenchOptions& options, const ProgressListener& progress) {
  const BenchSetting& setting = options.setting;
  const at::Device device = train::find_device(setting.device);
  if (setting.threads > 0) at::set_num_threads(setting.threads);
  const bool tf32 = options.precision != Precision::kFp32;
  at::globalContext().setAllowTF32CuBLAS(tf32);
  at::globalContext().setAllowTF32CuDNN(tf32);
  at::globalContext().setBenchmarkCuDNN(true);
  const data::Batch batch = random_batch(setting, device, 1);
  BenchSetting as_it_is = setting;
  as_it_is.graphs = false;
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

  KfacOptions traced = options.kfac;
  traced.trace = true;
  std::vector<std::unique_ptr<BenchModel>> models;
  const auto add = [&](const std::string& name, const std::optional<KfacOptions>& kfac, bool graphs,
                       const Distribution& distribution = {}) {
    result.variants.push_back({name + (graphs ? ", graphs" : ""), {}});
    models.push_back(
        std::make_unique<BenchModel>(graphs ? setting : as_it_is, device, kfac, distribution));
  };
  add("sgd", std::nullopt, false);
  if (setting.graphs) add("sgd", std::nullopt, true);
  Distribution first_order;
  first_order.plans = MeasureHere{.options = preset("sgd")};
  add("capture", options.kfac, setting.graphs, first_order);
  add("kfac", options.kfac, setting.graphs);
  add("kfac traced", traced, false);
  CallsAlone calls(describe_setting(setting), device);

  if (progress.begin) {
    progress.begin("steps", static_cast<std::size_t>(options.warmup + setting.steps));
  }
  std::vector<std::vector<double>> parts(kCategoryCount);
  std::map<std::string, std::vector<double>> factors;
  for (std::int64_t step = 0; step < options.warmup + setting.steps; ++step) {
    for (std::size_t index = 0; index < models.size(); ++index) {
      const double seconds = models[index]->step(batch, options.steps_per_sample);
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
    const double median = trace::quantile(parts[part], 0.5);
    if (median > 0) result.parts.emplace_back(category_name(kCategories[part]), median);
  }
  for (const auto& [name, milliseconds] : factors) {
    result.parts.emplace_back("  " + name, trace::quantile(milliseconds, 0.5));
  }
  result.calls_alone = calls.medians_ms();
  result.methods = kfac::measured_methods();
  return result;
}

}  // namespace spdkfac::bench
