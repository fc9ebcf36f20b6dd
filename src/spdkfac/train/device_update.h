// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <vector>

#include <torch/optim/optimizer.h>

namespace spdkfac::train {

// Updates parameters as an optimizer of torch (SGD, Adam, AdamW) does, up to rounding, with what
// changes from step to step on the device: the rate, in 32 bits, and Adam's counters. So an update
// that is recorded as part of a CUDA graph follows both. The state is the optimizer's own, which
// checkpoints hold; nothing else may step it meanwhile.
class DeviceUpdate {
 public:
  // `direct` as directly_updated() says. The optimizer must outlive this.
  DeviceUpdate(torch::optim::Optimizer& optimizer, std::set<const void*> direct, at::Device device);

  // Of the next updates; not part of a recording.
  void set_rate(double rate);
  void step();
  // A recorded step() was replayed.
  void count_replayed();

 private:
  using Group = torch::optim::OptimizerParamGroup;
  struct Parts;  // tensors of the parameters of one call

  void apply_directly(const std::vector<at::Tensor>& parameters, double decay);
  void step_sgd(const std::vector<at::Tensor>& parameters, const Group& group);
  template <class State>
  Parts adam_parts(const std::vector<at::Tensor>& parameters);
  void step_adam(const std::vector<at::Tensor>& parameters, const Group& group);
  void step_adamw(const std::vector<at::Tensor>& parameters, const Group& group);

  torch::optim::Optimizer& optimizer_;
  const std::set<const void*> direct_;
  at::Tensor rate_;  // 0-d
  double rate_on_device_ = 0;
  std::map<void*, at::Tensor> counters_;  // of Adam, by parameter
  std::vector<void*> stepped_;            // parameters of Adam that the last step() updated
};

}  // namespace spdkfac::train
