// SPDX-License-Identifier: Apache-2.0
// `spdkfac bench accuracy`: how far are a step's preconditioned gradients from those that double
// precision gives with the same factors, on a network that was trained a little?
#include <algorithm>
#include <memory>
#include <sstream>

#include <fmt/format.h>
#include <torch/torch.h>

#include "spdkfac/base/error.h"
#include "spdkfac/base/json.h"
#include "spdkfac/base/log.h"
#include "spdkfac/bench/bench_model.h"
#include "spdkfac/cli/output.h"
#include "spdkfac/cli/verbs.h"
#include "spdkfac/data/batches.h"
#include "spdkfac/data/fashion_mnist.h"
#include "spdkfac/kfac/symmetric.h"
#include "spdkfac/models/model.h"
#include "spdkfac/report/table.h"
#include "spdkfac/runtime/preconditioner.h"
#include "spdkfac/train/device.h"

namespace spdkfac::cli {
namespace {

struct AccuracyOptions {
  std::string model = "resnet20";
  std::string data_dir = kFashionMnistFolder;
  std::string device = "cpu";
  std::int64_t batch = 128;
  std::int64_t steps = 200;
  double learning_rate = 0.003;
  std::string out;
};

struct LayerError {
  std::string name;
  double difference = 0;  // squared
  double size = 0;        // squared
};

// A layer's factor from the state, in double precision on the CPU.
at::Tensor saved_factor(torch::serialize::InputArchive& layer, const std::string& key,
                        std::int64_t groups) {
  at::Tensor packed;
  layer.read(key, packed);
  packed = packed.cpu().to(at::kDouble);
  const auto elements = static_cast<double>(packed.numel()) / static_cast<double>(groups);
  const auto dim = static_cast<std::int64_t>((std::sqrt(8 * elements + 1) - 1) / 2 + 0.5);
  at::Tensor factor = at::empty({groups, dim, dim}, at::kDouble);
  unpack_upper(packed, factor);
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

std::vector<LayerError> errors(Preconditioner& kfac, const std::vector<at::Tensor>& before) {
  std::stringstream stream;
  {
    torch::serialize::OutputArchive archive;
    kfac.save(archive);
    archive.save_to(stream);
  }
  torch::serialize::InputArchive archive;
  archive.load_from(stream);
  std::vector<LayerError> result;
  for (std::size_t index = 0; index < kfac.layers().size(); ++index) {
    const TrackedLayer& layer = kfac.layers()[index];
    torch::serialize::InputArchive saved;
    archive.read(fmt::format("layer_{}", index), saved);
    c10::IValue value;
    saved.read("groups", value);
    const std::int64_t groups = value.toInt();
    const at::Tensor a = saved_factor(saved, "a_mean", groups);
    const at::Tensor g = saved_factor(saved, "g_mean", groups);
    const auto [damping_a, damping_g] =
        damping_of(a, g, kfac.options().damping_mode, kfac.options().damping);
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
std::vector<LayerError> measure(const AccuracyOptions& options, Precision precision) {
  const at::Device device = train::find_device(options.device);
  torch::manual_seed(1);
  ModelOptions shape;
  shape.channels = 1;
  const std::shared_ptr<Model> model = make_model(options.model, shape);
  model->to(device);
  KfacOptions kfac_options;
  kfac_options.precision = precision;
  kfac_options.inverse_interval = 5;
  kfac_options.learning_rate = options.learning_rate;
  Preconditioner kfac(*model, kfac_options, make_logger({.level = "warning"}));
  torch::optim::SGD optimizer(model->parameters(),
                              torch::optim::SGDOptions(options.learning_rate).momentum(0.9));
  const Batches batches(load_fashion_mnist(Split::kTrain, options.data_dir).to(device),
                        {.batch = options.batch, .shuffle = true, .device = device});
  Progress progress(precision_names()[static_cast<std::size_t>(precision)],
                    static_cast<std::size_t>(options.steps));
  std::vector<at::Tensor> before;
  // The last step has new inverses, and is not clipped.
  const std::int64_t last = (options.steps + 4) / 5 * 5;
  for (std::int64_t step = 0; step <= last; ++step) {
    const Batch batch = batches.at(step % batches.size());
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(model->forward(batch.images), batch.labels).backward();
    if (step == last) before = gradients(kfac);
    kfac.step(step == last ? 0 : options.learning_rate);
    optimizer.step();
    if (step < options.steps) progress.advance();
  }
  return errors(kfac, before);
}

double relative(double difference, double size) { return std::sqrt(difference / size); }

void run_accuracy_bench(const AccuracyOptions& options) {
  Table table({{"precision", Table::Align::kLeft},
               {"error"},
               {"largest of a layer"},
               {"layer", Table::Align::kLeft}});
  Json record = {{"format", "spdkfac.bench-accuracy/1"},
                 {"model", options.model},
                 {"device", options.device},
                 {"batch", options.batch},
                 {"steps", options.steps}};
  for (const Precision precision : {Precision::kFp32, Precision::kTf32, Precision::kBf16}) {
    const std::string& name = precision_names()[static_cast<std::size_t>(precision)];
    const std::vector<LayerError> layers = measure(options, precision);
    double difference = 0;
    double size = 0;
    for (const LayerError& layer : layers) {
      difference += layer.difference;
      size += layer.size;
      record["layers"][name][layer.name] = relative(layer.difference, layer.size);
    }
    const auto worst = std::max_element(
        layers.begin(), layers.end(), [](const LayerError& left, const LayerError& right) {
          return relative(left.difference, left.size) < relative(right.difference, right.size);
        });
    record["error"][name] = relative(difference, size);
    table.add_row({name, fmt::format("{:.1e}", relative(difference, size)),
                   fmt::format("{:.1e}", relative(worst->difference, worst->size)), worst->name});
  }
  if (!options.out.empty()) write_file_atomically(options.out, record.dump(1) + "\n");
  print(
      fmt::format("{} on Fashion-MNIST, {} steps of {} examples on {}; preconditioned gradients of "
                  "one more, relative to double precision with the same factors\n{}",
                  options.model, options.steps, options.batch, options.device, table.text()));
}

}  // namespace

void add_accuracy_bench(CLI::App& bench) {
  CLI::App* verb =
      bench.add_subcommand("accuracy", "Rounding of preconditioned gradients, by precision");
  const auto options = std::make_shared<AccuracyOptions>();
  const auto count = CLI::Range(std::int64_t{1}, std::int64_t{1'000'000});
  verb->add_option("--model", options->model, "Of 28x28 grey images; default resnet20");
  verb->add_option("--data-dir", options->data_dir, "Folder of Fashion-MNIST");
  verb->add_option("--device", options->device, "cpu (default) or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  verb->add_option("--batch", options->batch, "Examples of a step; default 128")->check(count);
  verb->add_option("--steps", options->steps, "Of training before; default 200")->check(count);
  verb->add_option("--lr", options->learning_rate, "Default 0.003")->check(CLI::Range(1e-12, 1e6));
  verb->add_option("--out", options->out, "Also write every layer's error to this file, as JSON");
  verb->callback([options] { run_accuracy_bench(*options); });
}

}  // namespace spdkfac::cli
