// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/bench/bench_model.h"

#include <chrono>

#include <ATen/autocast_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include "spdkfac/base/log.h"
#include "spdkfac/calibrate/timing.h"
#include "spdkfac/kfac/graphed_work.h"
#include "spdkfac/runtime/describe.h"
#include "spdkfac/runtime/graph_steps.h"
#include "spdkfac/runtime/step_meter.h"

namespace spdkfac::bench {
namespace {

std::shared_ptr<models::Model> model_of(const BenchSetting& setting) {
  torch::manual_seed(1);
  models::ModelOptions options;
  options.width = setting.width;
  options.channels = setting.input[0];
  return models::make_model(setting.model, options);
}

// Products in bf16 while it lives.
class Autocast {
 public:
  Autocast(at::Device device, bool on)
      : device_(device.type()), before_(at::autocast::is_autocast_enabled(device_)) {
    at::autocast::set_autocast_enabled(device_, on);
    if (on) at::autocast::set_autocast_dtype(device_, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, before_);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
  bool before_;
};

}  // namespace

std::string to_text(const BenchSetting& setting) {
  return fmt::format("{} (width {}), batch {}, {} on {}{}{}", setting.model, setting.width,
                     setting.batch, fmt::join(setting.input, "x"), setting.device,
                     setting.channels_last ? ", channels last" : "",
                     setting.graphs ? ", steps as CUDA graphs" : "");
}

Json to_json(const BenchSetting& setting) {
  return {{"model", setting.model},   {"width", setting.width},
          {"batch", setting.batch},   {"input", setting.input},
          {"device", setting.device}, {"threads", at::get_num_threads()},
          {"steps", setting.steps},   {"channels_last", setting.channels_last},
          {"graphs", setting.graphs}};
}

ModelSpec describe_setting(const BenchSetting& setting) {
  const std::shared_ptr<models::Model> model = model_of(setting);
  return describe(
      setting.model, *model, [&](at::Tensor images) { return model->forward(std::move(images)); },
      setting.batch, setting.input);
}

data::Batch random_batch(const BenchSetting& setting, at::Device device, std::uint64_t seed) {
  torch::manual_seed(seed);
  std::vector<std::int64_t> shape = {setting.batch};
  shape.insert(shape.end(), setting.input.begin(), setting.input.end());
  const at::TensorOptions options = at::TensorOptions().device(device);
  const auto format =
      setting.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  return {torch::randn(shape, options).contiguous(format),
          torch::randint(0, models::model_info(setting.model).classes, {setting.batch},
                         options.dtype(at::kLong))};
}

BenchModel::BenchModel(const BenchSetting& setting, at::Device device,
                       const std::optional<KfacOptions>& kfac, const Distribution& distribution)
    : device_(device),
      autocast_(setting.autocast),
      graphs_(setting.graphs),
      model_(model_of(setting)) {
  model_->to(device);
  if (setting.channels_last) {
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : model_->parameters()) {
      if (parameter.dim() != 4) continue;
      parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
    }
  }
  if (kfac) {
    kfac_ = std::make_unique<Preconditioner>(*model_, *kfac, distribution,
                                             make_logger({.level = "warning"}));
  }
  optimizer_ = std::make_unique<torch::optim::SGD>(
      model_->parameters(), torch::optim::SGDOptions(kLearningRate).momentum(0.9));
}

double BenchModel::step(const data::Batch& batch, int count) {
  using Clock = std::chrono::steady_clock;
  calibrate::wait_for_device(device_);
  const Clock::time_point start = Clock::now();
  if (graphs_ && !run_graph_) record_graph(batch);
  for (int index = 0; index < count; ++index) graphs_ ? run_graph_() : train(batch);
  calibrate::wait_for_device(device_);
  return std::chrono::duration<double>(Clock::now() - start).count() / count;
}

void BenchModel::record_graph(const data::Batch& batch) {
  const auto step = [this, batch] { train(batch); };
  if (kfac_) {
    run_graph_ = [steps = std::make_shared<GraphSteps>(*kfac_, step)] { steps->run(); };
  } else {
    run_graph_ = [steps = std::make_shared<kfac::GraphedWork>(step, /*whole_steps=*/true)] {
      steps->run();
    };
  }
}

void BenchModel::train(const data::Batch& batch) {
  if (kfac_) StepMeter(*kfac_).start_trace();
  optimizer_->zero_grad();
  at::Tensor loss;
  {
    const Autocast autocast(device_, autocast_);
    loss = torch::nn::functional::cross_entropy(model_->forward(batch.images), batch.labels);
  }
  loss.backward();
  if (kfac_) kfac_->step(kLearningRate, momentum_of(*optimizer_));
  optimizer_->step();
}

}  // namespace spdkfac::bench
