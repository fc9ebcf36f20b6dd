// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/cli/bench/trainee.h"

#include <chrono>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include "spdkfac/base/log.h"
#include "spdkfac/cli/device.h"
#include "spdkfac/runtime/describe.h"

namespace spdkfac::cli {
namespace {

std::shared_ptr<Model> model_of(const BenchSetting& setting) {
  torch::manual_seed(1);
  ModelOptions options;
  options.width = setting.width;
  options.channels = setting.input[0];
  return make_model(setting.model, options);
}

}  // namespace

std::string to_text(const BenchSetting& setting) {
  return fmt::format("{} (width {}), batch {}, {} on {}", setting.model, setting.width,
                     setting.batch, fmt::join(setting.input, "x"), setting.device);
}

Json to_json(const BenchSetting& setting) {
  return {{"model", setting.model}, {"width", setting.width},   {"batch", setting.batch},
          {"input", setting.input}, {"device", setting.device}, {"threads", at::get_num_threads()},
          {"steps", setting.steps}};
}

ModelSpec describe_setting(const BenchSetting& setting) {
  const std::shared_ptr<Model> model = model_of(setting);
  return describe(
      setting.model, *model, [&](at::Tensor images) { return model->forward(std::move(images)); },
      setting.batch, setting.input);
}

Batch random_batch(const BenchSetting& setting, at::Device device, std::uint64_t seed) {
  torch::manual_seed(seed);
  std::vector<std::int64_t> shape = {setting.batch};
  shape.insert(shape.end(), setting.input.begin(), setting.input.end());
  const at::TensorOptions options = at::TensorOptions().device(device);
  return {torch::randn(shape, options), torch::randint(0, model_info(setting.model).classes,
                                                       {setting.batch}, options.dtype(at::kLong))};
}

Trainee::Trainee(const BenchSetting& setting, at::Device device,
                 const std::optional<KfacOptions>& kfac, const Distribution& distribution)
    : device_(device), model_(model_of(setting)) {
  model_->to(device);
  if (kfac) {
    kfac_ = std::make_unique<Preconditioner>(*model_, *kfac, distribution,
                                             make_logger({.level = "warning"}));
  }
  optimizer_ = std::make_unique<torch::optim::SGD>(
      model_->parameters(), torch::optim::SGDOptions(kLearningRate).momentum(0.9));
}

double Trainee::step(const Batch& batch) {
  using Clock = std::chrono::steady_clock;
  synchronize(device_);
  const Clock::time_point start = Clock::now();
  if (kfac_) kfac_->start_trace();
  optimizer_->zero_grad();
  torch::nn::functional::cross_entropy(model_->forward(batch.images), batch.labels).backward();
  if (kfac_) kfac_->step(kLearningRate);
  optimizer_->step();
  synchronize(device_);
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace spdkfac::cli
