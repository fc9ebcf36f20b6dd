// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "spdkfac/data/dataset.h"
#include "spdkfac/plan/plan_options.h"
#include "spdkfac/runtime/kfac_options.h"
#include "spdkfac/train/learning_rate.h"

namespace spdkfac::train {

// What updates the parameters, under K-FAC or alone.
enum class BaseOptimizer { kSgd, kAdam, kAdamW };
const std::vector<std::string>& optimizer_names();  // sgd, adam, adamw

// How several ranks work together; alone nothing of it matters.
struct RankOptions {
  std::string backend = "mpi";  // or nccl
  std::int64_t timeout_seconds = 60;
  PlanOptions plan;
  std::string cluster;       // a name of the data
  std::string cluster_file;  // instead
  bool recalibrate = false;
  std::string plan_file;  // to follow
  std::string plan_out;   // to write what is followed at the end
  std::int64_t profile_steps = 5;
};

// The flags of `spdkfac train`, with the defaults that depend on others filled in.
struct TrainOptions {
  std::string model = "cnn28";
  double width = 1;

  std::string data = "fashion-mnist";
  std::string data_dir;  // empty: where the system has it
  std::int64_t synthetic_examples = 5120;
  data::ImageShape input;    // of synthetic data
  std::int64_t classes = 0;  // of synthetic data
  bool augment = false;

  std::string algorithm = "kfac";
  BaseOptimizer optimizer = BaseOptimizer::kSgd;
  // For the parameters outside K-FAC's layers; none: `optimizer`.
  std::optional<BaseOptimizer> others = std::nullopt;
  double others_rate = 0;
  KfacOptions kfac;
  std::int64_t batch = 0;
  std::int64_t epochs = 0;     // 0: as many as max_steps needs
  std::int64_t max_steps = 0;  // 0: no limit
  double learning_rate = 0;
  double momentum = 0.9;
  double weight_decay = 0;
  Schedule schedule = Schedule::kConstant;
  std::int64_t warmup_steps = 0;
  std::uint64_t seed = 1;
  std::string device = "cpu";
  bool graphs = true;  // on a GPU, steps as CUDA graphs where they can be
  int threads = 0;     // 0: torch's choice

  RankOptions ranks;

  std::string metrics;
  std::string trace;
  std::int64_t eval_every = 0;  // 0: at the end of epochs only
  double target_accuracy = 0;   // 0: none
  std::string checkpoint_dir;
  std::int64_t checkpoint_every = 0;  // 0: at the end of epochs
  int keep = 3;
  bool resume = false;
  std::string out;  // for the summary
  bool json = false;

  bool second_order() const { return algorithm != "sgd"; }
};

// Whether an optimizer of the run is SGD.
bool uses_momentum(const TrainOptions& options);

// What a run's numbers depend on, as flags and their values: a checkpoint is continued with the
// same. `total_steps` is part of it where the schedule depends on it.
using Settings = std::vector<std::pair<std::string, std::string>>;
Settings settings_of(const TrainOptions& options, int world, std::int64_t total_steps);

}  // namespace spdkfac::train
