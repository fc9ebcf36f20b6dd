// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "spdkfac/data/dataset.h"
#include "spdkfac/train/device_update.h"
#include "spdkfac/train/training.h"

namespace spdkfac::train {

// Steps of one rank as CUDA graphs, with K-FAC (GraphSteps) or without. The rate is on the device,
// so a schedule records nothing again, and all batches go through the same tensors. On the CPU each
// step is queued as it is.
class RecordedTraining {
 public:
  // Why steps of this run cannot be recorded; nothing if they can.
  static std::optional<std::string> obstacle(const Training& training);

  // Begins where the states of the optimizers stand. Each step adds its loss, times its examples,
  // to `loss_sum`. All must outlive this.
  RecordedTraining(Training& training, const at::Tensor& loss_sum);
  RecordedTraining(const RecordedTraining&) = delete;
  RecordedTraining& operator=(const RecordedTraining&) = delete;

  // All batches are of one size.
  void step(const data::Batch& batch, double rate);

 private:
  void hold(const data::Batch& batch);
  void set_rate(double rate);
  void queue();

  Training& training_;
  at::Tensor loss_sum_;
  data::Batch held_;
  std::vector<DeviceUpdate> updates_;
  at::Tensor kfac_rate_;  // what kl_clip goes by
  double rate_ = 0;
  bool queued_ = false;  // by the host, in this step
  std::function<void()> run_;
};

}  // namespace spdkfac::train
