// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <torch/optim/optimizer.h>

#include "spdkfac/data/dataset.h"
#include "spdkfac/models/model.h"
#include "spdkfac/runtime/preconditioner.h"
#include "spdkfac/train/ranks.h"
#include "spdkfac/train/train_options.h"

namespace spdkfac::train {

// What is trained, on what, by what. With the seed of the options the same each time.
struct Training {
  at::Device device = at::kCPU;
  data::Dataset train;
  data::Dataset test;
  std::shared_ptr<models::Model> model;
  std::unique_ptr<Ranks> ranks;
  std::unique_ptr<Preconditioner> kfac;  // null for first-order training of one rank
  bool second_order = false;             // otherwise it averages gradients, and has no state
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  // For the parameters outside K-FAC's layers, with this share of the rate; null: `optimizer`.
  std::unique_ptr<torch::optim::Optimizer> others;
  double others_share = 1;

  std::vector<torch::optim::Optimizer*> optimizers() const;
  // Updates all parameters by their gradients, which K-FAC may have preconditioned.
  void update(double learning_rate);
  std::int64_t parameters() const;
  // Of them, those that K-FAC covers.
  std::int64_t covered_parameters() const;
  // SHA-256 of all parameters and buffers, in the order of the model.
  std::string digest() const;
};

// Reads the data, makes the model, moves both to the device. Sets torch's seed and threads. What
// cannot work is a ConfigError: a device or data that are not there, a model for other images.
// Ranks that differ in options or data are, too. `say` is told what a user may want to know.
Training make_training(const TrainOptions& options, std::unique_ptr<Ranks> ranks,
                       const std::function<void(const std::string&)>& say);

struct Evaluation {
  double loss = 0;
  double accuracy = 0;  // 0 to 1
};

// Of the model on the test split, shared out among the ranks, which average their batch statistics
// before. Leaves the model in training mode and the random numbers alone.
Evaluation evaluate(Training& training, std::int64_t batch);

}  // namespace spdkfac::train
