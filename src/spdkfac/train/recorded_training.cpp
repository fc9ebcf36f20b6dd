// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/train/recorded_training.h"

#include <memory>
#include <utility>

#include <fmt/format.h>
#include <torch/torch.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/error.h"
#include "spdkfac/kfac/graphed_work.h"
#include "spdkfac/runtime/graph_steps.h"
#include "spdkfac/runtime/step_control.h"
#include "spdkfac/runtime/update.h"

namespace spdkfac::train {

std::optional<std::string> RecordedTraining::obstacle(const Training& training) {
  if (!training.kfac) return std::nullopt;
  try {
    StepControl(*training.kfac).require_recordable();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return std::nullopt;
}

RecordedTraining::RecordedTraining(Training& training, const at::Tensor& loss_sum)
    : training_(training), loss_sum_(loss_sum) {
  const auto direct = training.kfac ? directly_updated(*training.optimizer, *training.kfac)
                                    : std::set<const void*>();
  updates_.emplace_back(*training.optimizer, direct, training.device);
  if (training.others) {
    updates_.emplace_back(*training.others, std::set<const void*>(), training.device);
  }
  if (training.kfac) {
    kfac_rate_ = at::zeros({}, at::TensorOptions(at::kDouble).device(training.device));
    StepControl(*training.kfac).set_rate(kfac_rate_);
  }
  const auto step = [this] { queue(); };
  if (training.device.is_cpu()) {
    run_ = step;
  } else if (training.kfac) {
    run_ = [steps = std::make_shared<GraphSteps>(*training.kfac, step)] { steps->run(); };
  } else {
    run_ = [steps = std::make_shared<kfac::GraphedWork>(step, /*whole_steps=*/true)] {
      steps->run();
    };
  }
}

void RecordedTraining::step(const data::Batch& batch, double rate) {
  hold(batch);
  set_rate(rate);
  queued_ = false;
  run_();
  if (queued_) return;
  for (DeviceUpdate& update : updates_) update.count_replayed();
}

void RecordedTraining::hold(const data::Batch& batch) {
  if (!held_.images.defined()) {
    held_ = {batch.images.clone(), batch.labels.clone()};
    return;
  }
  SPDKFAC_CHECK(batch.size() == held_.size(),
                fmt::format("a batch of {} among recorded ones of {}", batch.size(), held_.size()));
  held_.images.copy_(batch.images);
  held_.labels.copy_(batch.labels);
}

void RecordedTraining::set_rate(double rate) {
  updates_.front().set_rate(rate);
  if (training_.others) updates_.back().set_rate(rate * training_.others_share);
  if (kfac_rate_.defined() && rate != rate_) kfac_rate_.fill_(rate);
  rate_ = rate;
}

void RecordedTraining::queue() {
  queued_ = true;
  training_.model->zero_grad();
  const at::Tensor loss =
      at::cross_entropy_loss(training_.model->forward(held_.images), held_.labels);
  loss.backward();
  if (training_.kfac) training_.kfac->step(rate_, momentum_of(*training_.optimizer));
  for (DeviceUpdate& update : updates_) update.step();
  loss_sum_.add_(loss.detach(), held_.size());
}

}  // namespace spdkfac::train
