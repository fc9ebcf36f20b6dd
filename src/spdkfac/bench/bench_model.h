// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include "spdkfac/base/json.h"
#include "spdkfac/data/dataset.h"
#include "spdkfac/models/model.h"
#include "spdkfac/runtime/preconditioner.h"

namespace spdkfac::bench {

// What benchmarks of training steps measure on.
struct BenchSetting {
  std::string model = "resnet50";
  double width = 1;
  std::vector<std::int64_t> input;  // channels, height, width
  std::int64_t batch = 0;           // of each rank
  std::string device = "cpu";
  int threads = 0;  // 0: torch's choice
  bool channels_last = false;
  bool autocast = false;  // the model's products in bf16
  bool graphs = false;    // CUDA: steps as graphs, see GraphSteps
  std::int64_t steps = 20;
};
// The model and its input as texts and records of benchmarks begin.
std::string to_text(const BenchSetting& setting);
Json to_json(const BenchSetting& setting);

// Its layers, for plan and simulate.
ModelSpec describe_setting(const BenchSetting& setting);

// Images of noise with random labels.
data::Batch random_batch(const BenchSetting& setting, at::Device device, std::uint64_t seed);

// A copy of the model that is trained by SGD, by K-FAC where `kfac` is given.
class BenchModel {
 public:
  // So small that a model of noise stays finite.
  static constexpr double kLearningRate = 1e-4;

  BenchModel(const BenchSetting& setting, at::Device device, const std::optional<KfacOptions>& kfac,
             const Distribution& distribution = {});

  // Trains so many steps in a row; the seconds of one. Steps as graphs take the first batch again.
  double step(const data::Batch& batch, int count = 1);

  Preconditioner& kfac() { return *kfac_; }

 private:
  void train(const data::Batch& batch);
  void record_graph(const data::Batch& batch);

  at::Device device_;
  bool autocast_;
  bool graphs_;
  std::shared_ptr<models::Model> model_;
  std::unique_ptr<Preconditioner> kfac_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::function<void()> run_graph_;  // of steps as graphs
};

}  // namespace spdkfac::bench
