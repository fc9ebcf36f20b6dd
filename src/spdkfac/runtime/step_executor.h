// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "spdkfac/comm/communicator.h"
#include "spdkfac/plan/plan.h"
#include "spdkfac/runtime/factor_bank.h"
#include "spdkfac/runtime/inverse_stage.h"
#include "spdkfac/runtime/layer_gradients.h"
#include "spdkfac/runtime/message_launcher.h"
#include "spdkfac/runtime/residence.h"
#include "spdkfac/runtime/step_work.h"

namespace spdkfac::runtime {

// Follows a plan through the steps of one rank, of any number of ranks. Data flows downwards: calls
// and gradients come in here, become factors in the bank, and leave through the launcher; what
// arrives is averaged in, inverted and used to precondition.
//
// Layers whose factors travel are handled as the plan says. A layer whose factors no message
// carries is kept, averaged, inverted and preconditioned by this rank for itself, all such layers
// together where the device can. On one rank these are all layers.
class StepExecutor {
 public:
  // `gradients`: those that travel with each layer of the bank.
  StepExecutor(Communicator& communicator, FactorBank& bank, Incidents& incidents,
               StepRecorder& recorder, LayerGradients gradients);
  StepExecutor(const StepExecutor&) = delete;
  StepExecutor& operator=(const StepExecutor&) = delete;

  // Plans of the kinds of steps that will come. `order`: the layer of the bank of each layer of the
  // plans. The current step follows them, too. What this rank must keep and did not is fetched from
  // a rank that did.
  void adopt(const std::map<StepKind, Plan>& plans, const ModelSpec& model,
             std::vector<std::size_t> order);
  bool planned() const { return !steps_.empty(); }

  // From the next step on messages wait for run() or synchronize().
  void hold_messages() { launcher_.hold(); }
  // The next step begins. With `defer` messages wait for run(), so that none travels during passes.
  void begin(StepWork work, bool defer);
  const StepWork& work() const { return work_; }

  // What the capture sees: a call of a layer, and the gradient of its output. on_call returns the
  // pass, for on_gradient.
  std::int64_t on_call(std::size_t layer, const kfac::LayerUse& use, const at::Tensor& input,
                       const at::Tensor& output);
  void on_gradient(std::size_t layer, const kfac::LayerUse& use, const at::Tensor& gradient,
                   std::int64_t pass);
  // Whether a call of the layer was seen in this step.
  bool called(std::size_t layer) const { return launcher_.called(layer); }
  // Autograd has finished a gradient of a layer.
  void gradient_finished(std::size_t layer, std::size_t gradient) {
    launcher_.gradient_finished(layer, gradient);
  }

  // Sends and takes in the gradients that are not sent to single owners; run() does the rest.
  void synchronize();
  // Everything between the backward pass and the clipping of gradients: on return this rank has all
  // preconditioned gradients (averaged ones, without factors). Returns what clipping needs of each
  // layer of the bank (kfac::inner_product); undefined for those that keep their gradients.
  std::vector<at::Tensor> run();
  // Adds what waited for the number of examples to be known.
  void settle();
  // Ends the step that has run.
  void end();
  // Gives up the step, whose batch is not to count.
  void discard();

  Residence& residence() { return residence_; }

  Bytes buffer_bytes() const { return launcher_.buffer_bytes(); }

 private:
  bool defers(std::size_t layer) const;
  void send_rest();
  void add_deferred();
  void receive(std::size_t message);
  void receive_gradients(const Message& message);
  void require_gradients_as_sent() const;
  void note_missed_calls();
  void average_own_factors();
  void invert_own_layers();
  std::vector<at::Tensor> precondition(std::vector<at::Tensor> inner);

  Communicator& communicator_;
  FactorBank& bank_;
  Incidents& incidents_;
  StepRecorder& recorder_;
  const LayerGradients gradients_;
  MessageLauncher launcher_;
  InverseStage inverse_stage_;
  Residence residence_;

  std::map<StepKind, PlannedStep> steps_;
  const PlannedStep* step_ = nullptr;    // that is followed; null before the first plan
  std::vector<std::size_t> travelling_;  // layers whose factors travel, in the plan's order
  std::vector<std::size_t> own_;         // the others
  StepWork work_;
  bool synchronized_ = false;  // the gradients of this step have been taken in
  std::size_t received_ = 0;   // messages of this step that have been taken in
};

}  // namespace spdkfac::runtime
