// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/bench/accuracy_bench.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include <fmt/format.h>
#include <torch/torch.h>

#include "spdkfac/base/log.h"
#include "spdkfac/data/batches.h"
#include "spdkfac/kfac/inverse.h"
#include "spdkfac/kfac/symmetric.h"
#include "spdkfac/models/model.h"
#include "spdkfac/report/record.h"
#include "spdkfac/report/table.h"
#include "spdkfac/runtime/preconditioner.h"
#include "spdkfac/train/device.h"

namespace spdkfac::bench {
namespace {

// A layer's factor from the state, in double precision on the CPU.
at::Tensor saved_factor(const KfacState& state, const std::string& name) {
  const at::Tensor packed = state.tensors.at(name).to(at::kDouble);
  const auto elements = static_cast<double>(packed.size(1));
  const auto dim = static_cast<std::int64_t>((std::sqrt(8 * elements + 1) - 1) / 2 + 0.5);
  at::Tensor factor = at::empty({packed.size(0), dim, dim}, at::kDouble);
  kfac::unpack_upper(packed.view({-1}), factor);
  return factor;
}

at::Tensor damped_inverse(const at::Tensor& factor, const at::Tensor& damping) {
  return at::linalg_inv(factor + damping.view({-1, 1, 1}) * at::eye(factor.size(1), at::kDouble));
}

// Weight and bias as one matrix [groups, out, in | bias], in double precision on the CPU.
at::Tensor joined(const at::Tensor& weight, const at::Tensor& bias, std::int64_t groups) {
  at::Tensor all = weight.cpu().to(at::kDouble).reshape({groups, weight.size(0) / groups, -1});
  if (!bias.defined()) return all;
  return at::cat({all, bias.cpu().to(at::kDouble).view({groups, -1, 1})}, 2);
}

std::vector<at::Tensor> gradients(const Preconditioner& kfac) {
  std::vector<at::Tensor> all;
  for (const TrackedLayer& layer : kfac.layers()) {
    const at::Tensor bias = layer.bias.defined() ? layer.bias.grad().clone() : at::Tensor();
    all.push_back(layer.weight.grad().clone());
    all.push_back(bias);
  }
  return all;
}

std::vector<LayerError> layer_errors(Preconditioner& kfac, const std::vector<at::Tensor>& before) {
  const KfacState state = kfac.state().read_all();
  std::vector<LayerError> result;
  for (std::size_t index = 0; index < kfac.layers().size(); ++index) {
    const TrackedLayer& layer = kfac.layers()[index];
    const at::Tensor a = saved_factor(state, layer.name + ".a_average");
    const at::Tensor g = saved_factor(state, layer.name + ".g_average");
    const std::int64_t groups = a.size(0);
    const auto [damping_a, damping_g] =
        kfac::damping_of(a, g, kfac.options().damping_mode, kfac.options().damping);
    const at::Tensor gradient = joined(before[2 * index], before[2 * index + 1], groups);
    const at::Tensor expected = at::matmul(at::matmul(damped_inverse(g, damping_g), gradient),
                                           damped_inverse(a, damping_a));
    const at::Tensor got = joined(layer.weight.grad(),
                                  layer.bias.defined() ? layer.bias.grad() : at::Tensor(), groups);
    result.push_back({layer.name, (got - expected).square().sum().item<double>(),
                      expected.square().sum().item<double>()});
  }
  return result;
}

// Trains, then looks at one more step.
std::vector<LayerError> measure(const AccuracyOptions& options, Precision precision,
                                const ProgressListener& progress) {
  const at::Device device = train::find_device(options.device);
  torch::manual_seed(1);
  models::ModelOptions shape;
  shape.channels = 1;
  const std::shared_ptr<models::Model> model = models::make_model(options.model, shape);
  model->to(device);
  KfacOptions kfac_options;
  kfac_options.precision = precision;
  kfac_options.inverse_interval = 5;
  kfac_options.learning_rate = options.learning_rate;
  Preconditioner kfac(*model, kfac_options, make_logger({.level = "warning"}));
  torch::optim::SGD optimizer(model->parameters(),
                              torch::optim::SGDOptions(options.learning_rate).momentum(0.9));
  const data::Batches batches(
      data::load_fashion_mnist(data::Split::kTrain, options.data_dir).to(device),
      {.batch = options.batch, .shuffle = true, .device = device});
  if (progress.begin) {
    progress.begin(name_of(precision_names(), precision), static_cast<std::size_t>(options.steps));
  }
  std::vector<at::Tensor> before;
  // The last step has new inverses, and is not clipped.
  const std::int64_t last = (options.steps + 4) / 5 * 5;
  for (std::int64_t step = 0; step <= last; ++step) {
    const data::Batch batch = batches.at(step % batches.size());
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(model->forward(batch.images), batch.labels).backward();
    if (step == last) before = gradients(kfac);
    kfac.step(step == last ? 0 : options.learning_rate, momentum_of(optimizer));
    optimizer.step();
    if (step < options.steps && progress.advance) progress.advance();
  }
  return layer_errors(kfac, before);
}

}  // namespace

double LayerError::relative() const { return std::sqrt(difference / size); }

double PrecisionErrors::relative() const {
  LayerError all;
  for (const LayerError& layer : layers) {
    all.difference += layer.difference;
    all.size += layer.size;
  }
  return all.relative();
}

const LayerError& PrecisionErrors::worst() const {
  return *std::max_element(layers.begin(), layers.end(),
                           [](const LayerError& left, const LayerError& right) {
                             return left.relative() < right.relative();
                           });
}

std::vector<PrecisionErrors> bench_accuracy(const AccuracyOptions& options,
                                            const ProgressListener& progress) {
  std::vector<PrecisionErrors> result;
  for (const Precision precision : {Precision::kFp32, Precision::kTf32, Precision::kBf16}) {
    result.push_back({precision, measure(options, precision, progress)});
  }
  return result;
}

std::string to_text(const AccuracyOptions& options, const std::vector<PrecisionErrors>& result) {
  report::Table table({{"precision", report::Table::Align::kLeft},
                       {"error"},
                       {"largest in a layer"},
                       {"layer", report::Table::Align::kLeft}});
  for (const PrecisionErrors& errors : result) {
    table.add_row({name_of(precision_names(), errors.precision),
                   fmt::format("{:.1e}", errors.relative()),
                   fmt::format("{:.1e}", errors.worst().relative()), errors.worst().name});
  }
  return fmt::format(
      "{} on Fashion-MNIST, {} steps of {} examples on {}; error of the preconditioned gradients "
      "of one more step, relative to double precision with the same factors\n{}",
      options.model, options.steps, options.batch, options.device, table.text());
}

Json to_json(const AccuracyOptions& options, const std::vector<PrecisionErrors>& result) {
  report::RecordHead head;
  head.experiment = "accuracy";
  head.mode = report::RecordMode::kMeasured;
  head.device = options.device;
  head.options = {{"model", options.model},
                  {"batch", options.batch},
                  {"steps", options.steps},
                  {"learning_rate", options.learning_rate}};
  Json record = to_json(head);
  record["accuracy"] = Json::array();
  for (const PrecisionErrors& errors : result) {
    Json layers = Json::array();
    for (const LayerError& layer : errors.layers) {
      layers.push_back({{"name", layer.name}, {"error", layer.relative()}});
    }
    record["accuracy"].push_back({{"precision", name_of(precision_names(), errors.precision)},
                                  {"error", errors.relative()},
                                  {"layers", std::move(layers)}});
  }
  return record;
}

}  // namespace spdkfac::bench
