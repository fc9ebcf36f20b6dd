// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/cli/step_bench.h"

#include <chrono>
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
constexpr int kCallRepetitions = 5;
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

// Median seconds of a call on its own.
template <class Call>
double alone(at::Device device, const Call& call) {
  std::vector<double> seconds;
  call();
  for (int repetition = 0; repetition < kCallRepetitions; ++repetition) {
    synchronize(device);
    const Clock::time_point start = Clock::now();
    call();
    synchronize(device);
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  return quantile(seconds, 0.5);
}

// What torch's products and factorisations take for the layers of the model, without all else.
std::vector<std::pair<std::string, double>> calls_alone(const ModelSpec& model, at::Device device) {
  const torch::NoGradGuard no_grad;
  const at::TensorOptions options = at::TensorOptions().device(device);
  double products = 0;
  double inverses = 0;
  double preconditioning = 0;
  for (const LayerSpec& layer : model.layers) {
    for (const std::int64_t dim : {layer.d_a, layer.d_g}) {
      const at::Tensor rows = torch::randn({dim, model.batch * layer.positions}, options);
      at::Tensor sum = torch::zeros({dim, dim}, options);
      products += alone(device, [&] { sum.addmm_(rows, rows.t()); });
      const at::Tensor matrix = sum + torch::eye(dim, options) * sum.diagonal().mean();
      inverses += alone(device, [&] {
        at::cholesky_inverse(std::get<0>(at::linalg_cholesky_ex(matrix, /*upper=*/true)), true);
      });
    }
    const at::Tensor a = torch::randn({layer.d_a, layer.d_a}, options);
    const at::Tensor g = torch::randn({layer.d_g, layer.d_g}, options);
    const at::Tensor gradient = torch::randn({layer.d_g, layer.d_a}, options);
    preconditioning += alone(device, [&] { torch::mm(torch::mm(g, gradient), a); });
  }
  return {{"factor_comp", products * kMilli},
          {"inverse_comp", inverses * kMilli},
          {"precondition", preconditioning * kMilli}};
}

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
    progress.advance();
  }
  for (std::size_t part = 0; part < kCategoryCount; ++part) {
    const double median = quantile(parts[part], 0.5);
    if (median > 0) result.parts.emplace_back(category_name(kCategories[part]), median);
  }
  Model& model = variants[0]->model();
  const ModelSpec spec = describe(
      options.model, model, [&](at::Tensor x) { return model.forward(std::move(x)); },
      options.batch, options.input);
  variants.clear();
  result.calls_alone = calls_alone(spec, device);
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
