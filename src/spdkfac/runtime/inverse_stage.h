// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "spdkfac/runtime/factor_bank.h"
#include "spdkfac/runtime/layer_gradients.h"
#include "spdkfac/runtime/message_launcher.h"
#include "spdkfac/runtime/planned_step.h"

namespace spdkfac::runtime {

// What follows the averages in a step whose factors travel: inverts what the plan has this rank
// invert, sends results in the plan's order and takes in those of others. Results are inverses, or
// gradients that the owner of a layer has preconditioned.
class InverseStage {
 public:
  InverseStage(FactorBank& bank, MessageLauncher& launcher, const LayerGradients& gradients,
               StepRecorder& recorder, int rank);

  // `layers`: those whose factors travel, in the plan's order. Where owners precondition, ⟨V, ∇W⟩
  // of their layers is written to `inner`, which has an element for each tracked layer.
  void run(const PlannedStep& step, const StepWork& work, const std::vector<std::size_t>& layers,
           std::vector<at::Tensor>& inner);

 private:
  using Dampings = std::map<int, FactorBank::DampingPair>;  // by layer of the plan

  bool mine(const FactorPlacement& factor) const { return factor.owner.value_or(rank_) == rank_; }
  void exchange_means(const PlannedStep& step);
  // For the factors that this rank inverts in this step.
  Dampings dampings(const PlannedStep& step, const StepWork& work) const;
  // Inverts what this rank is to, and lets each broadcast leave when its last factor is done.
  void invert_and_send(const PlannedStep& step, const StepWork& work,
                       std::vector<at::Tensor>& inner);
  // Whether a broadcast brings an inverse that the step does not renew: all ranks leave it out.
  bool skips(const PlannedStep& step, const StepWork& work, std::size_t broadcast) const;
  void fill(const PlannedStep& step, std::size_t broadcast, std::vector<at::Tensor>& inner);
  void take_in(const PlannedStep& step, std::size_t broadcast, std::vector<at::Tensor>& inner);

  // A layer's gradients and its ⟨V, ∇W⟩ in the buffer of a broadcast.
  struct Part {
    std::size_t layer;
    at::Tensor gradients;
    at::Tensor inner;
  };
  std::vector<Part> parts_of(const PlannedStep& step, std::size_t broadcast) const;

  FactorBank& bank_;
  MessageLauncher& launcher_;
  const LayerGradients& gradients_;
  StepRecorder& recorder_;
  const int rank_;
};

}  // namespace spdkfac::runtime
