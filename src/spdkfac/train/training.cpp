// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/train/training.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <torch/torch.h>

#include "spdkfac/base/error.h"
#include "spdkfac/base/log.h"
#include "spdkfac/data/batches.h"
#include "spdkfac/data/cifar10.h"
#include "spdkfac/data/fashion_mnist.h"
#include "spdkfac/data/shuffle.h"
#include "spdkfac/data/synthetic.h"
#include "spdkfac/plan/plan_options_file.h"
#include "spdkfac/runtime/update.h"
#include "spdkfac/train/device.h"
#include "spdkfac/train/sha256.h"
#include "spdkfac/train/train_planner.h"

namespace spdkfac::train {
namespace {

data::Dataset load_data(const TrainOptions& options, data::Split split) {
  if (options.data == "cifar10") return data::load_cifar10(split, options.data_dir);
  if (options.data == "fashion-mnist") {
    return data::load_fashion_mnist(
        split, options.data_dir.empty() ? data::kFashionMnistFolder : options.data_dir);
  }
  data::SyntheticOptions synthetic;
  synthetic.shape = options.input;
  synthetic.classes = options.classes;
  synthetic.seed = options.seed;
  synthetic.examples = options.synthetic_examples;
  if (split == data::Split::kTest) synthetic.examples = (synthetic.examples + 4) / 5;
  return data::make_synthetic(split, synthetic);
}

// All that must be the same on every rank.
std::string options_text(const TrainOptions& options, int world) {
  std::string text = to_json(options.ranks.plan).dump();
  for (const auto& [flag, value] : settings_of(options, world, options.max_steps)) {
    text += fmt::format(" {} {}", flag, value);
  }
  return text + fmt::format(
                    " --epochs {} --max-steps {} --eval-every {} --target-accuracy {} "
                    "--checkpoint-every {} --profile-steps {} --checkpoint-dir {}",
                    options.epochs, options.max_steps, options.eval_every, options.target_accuracy,
                    options.checkpoint_every, options.ranks.profile_steps,
                    !options.checkpoint_dir.empty());
}

// One image goes through, so that a misfit shows before the run.
void check_input(models::Model& model, const std::string& name, const data::Dataset& data,
                 at::Device device) {
  const torch::NoGradGuard no_grad;
  model.eval();
  try {
    model.forward(torch::zeros({1, data.shape.channels, data.shape.height, data.shape.width},
                               at::TensorOptions(device)));
  } catch (const c10::Error&) {
    const std::vector<std::int64_t>& own = models::model_info(name).input;
    throw ConfigError(
        fmt::format("train: model {} (made for {}x{}x{}) does not accept the images of {} ({}); "
                    "choose another --model, --data or --input",
                    name, own[0], own[1], own[2], data.name, data.shape.text()));
  }
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const TrainOptions& options,
                                                        BaseOptimizer kind, double rate,
                                                        std::vector<at::Tensor> parameters) {
  if (kind == BaseOptimizer::kAdam) {
    return std::make_unique<torch::optim::Adam>(
        std::move(parameters), torch::optim::AdamOptions(rate).weight_decay(options.weight_decay));
  }
  if (kind == BaseOptimizer::kAdamW) {
    return std::make_unique<torch::optim::AdamW>(
        std::move(parameters), torch::optim::AdamWOptions(rate).weight_decay(options.weight_decay));
  }
  return std::make_unique<torch::optim::SGD>(
      std::move(parameters),
      torch::optim::SGDOptions(rate).momentum(options.momentum).weight_decay(options.weight_decay));
}

// One for all parameters, or one for K-FAC's layers and one for the rest, if there is any.
void make_optimizers(const TrainOptions& options, Training& training) {
  std::vector<at::Tensor> covered = training.model->parameters();
  std::vector<at::Tensor> rest;
  if (options.others) {
    rest = other_parameters(covered, training.kfac->layers());
    std::erase_if(covered, [&](const at::Tensor& parameter) {
      return std::any_of(rest.begin(), rest.end(),
                         [&](const at::Tensor& one) { return one.is_same(parameter); });
    });
  }
  training.optimizer = make_optimizer(options, options.optimizer, options.learning_rate, covered);
  if (rest.empty()) return;
  training.others = make_optimizer(options, *options.others, options.others_rate, rest);
  training.others_share = options.others_rate / options.learning_rate;
}

void set_rate(torch::optim::Optimizer& optimizer, double rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
}

}  // namespace

std::vector<torch::optim::Optimizer*> Training::optimizers() const {
  std::vector<torch::optim::Optimizer*> all = {optimizer.get()};
  if (others) all.push_back(others.get());
  return all;
}

void Training::update(double learning_rate) {
  set_rate(*optimizer, learning_rate);
  if (kfac) {
    update_parameters(*optimizer, *kfac);
  } else {
    optimizer->step();
  }
  if (!others) return;
  set_rate(*others, learning_rate * others_share);
  others->step();
}

std::int64_t Training::parameters() const {
  std::int64_t count = 0;
  for (const at::Tensor& parameter : model->parameters()) count += parameter.numel();
  return count;
}

std::int64_t Training::covered_parameters() const {
  std::int64_t count = 0;
  if (!kfac) return 0;
  for (const TrackedLayer& layer : kfac->layers()) {
    for (const ParameterPart& own : own_parameters(layer)) count += own.numel();
  }
  return count;
}

std::string Training::digest() const {
  Sha256 sum;
  const auto add = [&](const at::Tensor& tensor) {
    const at::Tensor bytes = tensor.detach().cpu().contiguous();
    sum.add(bytes.const_data_ptr(), bytes.nbytes());
  };
  for (const at::Tensor& parameter : model->parameters()) add(parameter);
  for (const at::Tensor& buffer : model->buffers()) add(buffer);
  return sum.finish();
}

Training make_training(const TrainOptions& options, std::unique_ptr<Ranks> given,
                       const std::function<void(const std::string&)>& say) {
  if (options.threads > 0) at::set_num_threads(options.threads);
  Training training;
  training.device = find_device(options.device);
  training.ranks = std::move(given);
  training.second_order = options.second_order();
  const Ranks& ranks = *training.ranks;
  ranks.require_same("the options", options_text(options, ranks.size()));
  torch::manual_seed(options.seed);
  models::ModelOptions model;
  model.width = options.width;
  training.train = load_data(options, data::Split::kTrain);
  training.test = load_data(options, data::Split::kTest);
  ranks.require_same("the number of examples",
                     fmt::format("{} + {}", training.train.size, training.test.size));
  if (training.train.size < options.batch * ranks.size()) {
    throw ConfigError(
        fmt::format("train: --batch {}{} exceeds the {} examples of the training split; lower it",
                    options.batch, ranks.alone() ? "" : fmt::format(" of {} ranks", ranks.size()),
                    training.train.size));
  }
  model.classes = training.train.classes;
  model.channels = training.train.shape.channels;
  training.model = models::make_model(options.model, model);
  training.model->to(training.device);
  check_input(*training.model, options.model, training.train, training.device);
  training.train = training.train.to(training.device);
  training.test = training.test.to(training.device);
  if (!ranks.alone()) ranks.require_same("the first parameters", training.digest());
  Distribution distribution = make_distribution(options, ranks, training.device, say);
  if (options.second_order() || !ranks.alone()) {
    training.kfac = std::make_unique<Preconditioner>(
        *training.model, options.kfac, std::move(distribution), make_logger({.level = "warning"}));
  }
  make_optimizers(options, training);
  // Random numbers of training itself, such as dropout's, differ from rank to rank.
  if (ranks.rank() > 0) {
    torch::manual_seed(data::mix(options.seed, static_cast<std::uint64_t>(ranks.rank())));
  }
  return training;
}

Evaluation evaluate(Training& training, std::int64_t batch) {
  const torch::NoGradGuard no_grad;
  const Ranks& ranks = *training.ranks;
  ranks.average(training.model->buffers());
  training.model->eval();
  at::Tensor loss = torch::zeros({}, at::TensorOptions(at::kDouble).device(training.device));
  at::Tensor correct = torch::zeros({}, at::TensorOptions(at::kLong).device(training.device));
  const data::Batches batches(
      training.test,
      {.batch = batch, .rank = ranks.rank(), .world = ranks.size(), .device = training.device});
  for (std::int64_t k = 0; k < batches.size(); ++k) {
    const data::Batch examples = batches.at(k);
    if (examples.size() == 0) continue;  // more ranks than examples at the end
    const at::Tensor logits = training.model->forward(examples.images);
    loss += at::cross_entropy_loss(logits, examples.labels, {}, at::Reduction::Sum);
    correct += logits.argmax(1).eq(examples.labels).sum();
  }
  training.model->train();
  const std::vector<double> sums =
      ranks.sum({loss.item<double>(), static_cast<double>(correct.item<std::int64_t>()),
                 static_cast<double>(batches.examples())});
  return {sums[0] / sums[2], sums[1] / sums[2]};
}

}  // namespace spdkfac::train
