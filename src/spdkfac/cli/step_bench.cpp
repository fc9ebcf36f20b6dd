// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/cli/step_bench.h"

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <optional>

#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include "spdkfac/cli/device.h"
#include "spdkfac/cli/output.h"
#include "spdkfac/kfac/symmetric.h"
#include "spdkfac/models/model.h"
#include "spdkfac/report/breakdown.h"
#include "spdkfac/report/statistics.h"
#include "spdkfac/report/table.h"
#include "spdkfac/runtime/describe.h"
#include "spdkfac/runtime/preconditioner.h"

namespace spdkfac::cli {
namespace {

constexpr double kRate = 1e-4;
constexpr double kMilli = 1e3;

using Clock = std::chrono::steady_clock;

// One way to train, with its own copy of the model.
class Variant {
 public:
  Variant(std::string name, const StepBenchOptions& options, at::Device device,
          const std::optional<KfacOptions>& kfac)
      : name_(std::move(name)), device_(device) {
    torch::manual_seed(1);
    ModelOptions model;
    model.width = options.width;
    model.channels = options.input[0];
    model_ = make_model(options.model, model);
    model_->to(device);
    if (kfac) kfac_ = std::make_unique<Preconditioner>(*model_, *kfac);
    optimizer_ = std::make_unique<torch::optim::SGD>(model_->parameters(),
                                                     torch::optim::SGDOptions(kRate).momentum(0.9));
  }

  double step(const at::Tensor& images, const at::Tensor& labels) {
    synchronize(device_);
    const Clock::time_point start = Clock::now();
    if (kfac_) kfac_->start_trace();
    optimizer_->zero_grad();
    torch::nn::functional::cross_entropy(model_->forward(images), labels).backward();
    if (kfac_) kfac_->step(kRate);
    optimizer_->step();
    synchronize(device_);
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  const std::string& name() const { return name_; }
  Model& model() { return *model_; }
  Preconditioner& kfac() { return *kfac_; }

 private:
  std::string name_;
  at::Device device_;
  std::shared_ptr<Model> model_;
  std::unique_ptr<Preconditioner> kfac_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

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
    synchronize(device_);
    const Clock::time_point start = Clock::now();
    calls();
    synchronize(device_);
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

}  // namespace

StepBenchResult bench_step(const StepBenchOptions& options) {
  const at::Device device = find_device(options.device);
  if (options.threads > 0) at::set_num_threads(options.threads);
  at::globalContext().setAllowTF32CuBLAS(options.tf32);
  at::globalContext().setAllowTF32CuDNN(options.tf32);
  at::globalContext().setBenchmarkCuDNN(true);
  torch::manual_seed(1);
  std::vector<std::int64_t> shape = {options.batch};
  shape.insert(shape.end(), options.input.begin(), options.input.end());
  const at::TensorOptions tensor = at::TensorOptions().device(device);
  const at::Tensor images = torch::randn(shape, tensor);
  const at::Tensor labels = torch::randint(0, model_info(options.model).classes, {options.batch},
                                           tensor.dtype(at::kLong));

  StepBenchResult result;
  if (!device.is_cpu()) {
    for (const bool second_order : {false, true}) {
      Variant variant("", options, device,
                      second_order ? std::optional(options.kfac) : std::nullopt);
      variant.step(images, labels);  // the first tries algorithms, with memory for each
      at::getDeviceAllocator(device.type())->resetPeakStats(device.index());
      variant.step(images, labels);
      (second_order ? result.peak_bytes_kfac : result.peak_bytes_sgd) = peak_bytes(device);
    }
  }

  KfacOptions watching = options.kfac;
  watching.factor_interval = watching.inverse_interval = std::int64_t{1} << 40;
  KfacOptions traced = options.kfac;
  traced.trace = true;
  std::vector<std::unique_ptr<Variant>> variants;
  const auto add = [&](const char* name, const std::optional<KfacOptions>& kfac) {
    variants.push_back(std::make_unique<Variant>(name, options, device, kfac));
    result.variants.push_back({name, {}});
  };
  add("sgd", std::nullopt);
  add("capture", watching);
  add("kfac", options.kfac);
  add("kfac traced", traced);
  variants[1]->kfac().step(kRate);  // the step at which factors would be due, on nothing
  Model& model = variants[0]->model();
  CallsAlone calls(
      describe(
          options.model, model, [&](at::Tensor x) { return model.forward(std::move(x)); },
          options.batch, options.input),
      device);

  Progress progress("steps", static_cast<std::size_t>(options.warmup + options.steps));
  std::vector<std::vector<double>> parts(kCategoryCount);
  for (std::int64_t step = 0; step < options.warmup + options.steps; ++step) {
    for (std::size_t index = 0; index < variants.size(); ++index) {
      const double seconds = variants[index]->step(images, labels);
      if (step < options.warmup) continue;
      result.variants[index].seconds.push_back(seconds);
      if (index != 3) continue;
      const CategoryTimes times = breakdown(variants[index]->kfac().trace(), 0);
      for (std::size_t part = 0; part < kCategoryCount; ++part) {
        parts[part].push_back(times[kCategories[part]].value() * kMilli);
      }
    }
    if (step >= options.warmup) calls.measure();
    progress.advance();
  }
  for (std::size_t part = 0; part < kCategoryCount; ++part) {
    const double median = quantile(parts[part], 0.5);
    if (median > 0) result.parts.emplace_back(category_name(kCategories[part]), median);
  }
  result.calls_alone = calls.medians_ms();
  return result;
}

std::string to_text(const StepBenchOptions& options, const StepBenchResult& result) {
  std::string text = fmt::format(
      "{} (width {}), batch {}, {} on {}{}; {} steps of each, interleaved, after {} to warm up; "
      "factors every {}, inverses every {} steps\n",
      options.model, options.width, options.batch, fmt::join(options.input, "x"), options.device,
      options.device == "cpu" ? fmt::format(" ({} threads)", at::get_num_threads())
                              : std::string(options.tf32 ? " (tf32)" : " (fp32)"),
      options.steps, options.warmup, options.kfac.factor_interval, options.kfac.inverse_interval);
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
  if (result.peak_bytes_kfac > 0) {
    text += fmt::format("peak memory: sgd {:.0f} MB, kfac {:.0f} MB\n",
                        static_cast<double>(result.peak_bytes_sgd) / 1e6,
                        static_cast<double>(result.peak_bytes_kfac) / 1e6);
  }
  return text;
}

Json to_json(const StepBenchOptions& options, const StepBenchResult& result) {
  Json document = {{"format", "spdkfac.bench-step/1"},
                   {"model", options.model},
                   {"width", options.width},
                   {"batch", options.batch},
                   {"input", options.input},
                   {"device", options.device},
                   {"tf32", options.tf32},
                   {"threads", at::get_num_threads()},
                   {"kfac", digest(options.kfac)},
                   {"seconds", Json::object()},
                   {"parts_ms", Json::object()},
                   {"calls_alone_ms", Json::object()}};
  for (const StepSamples& variant : result.variants)
    document["seconds"][variant.name] = variant.seconds;
  for (const auto& [name, value] : result.parts) document["parts_ms"][name] = value;
  for (const auto& [name, value] : result.calls_alone) document["calls_alone_ms"][name] = value;
  if (result.peak_bytes_kfac > 0) {
    document["peak_bytes"] = {{"sgd", result.peak_bytes_sgd}, {"kfac", result.peak_bytes_kfac}};
  }
  return document;
}

}  // namespace spdkfac::cli
