// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "spdkfac/comm/communicator.h"
#include "spdkfac/plan/plan.h"
#include "spdkfac/runtime/factor_bank.h"
#include "spdkfac/runtime/message_pipeline.h"

namespace spdkfac {

// Follows the plan through a step on one rank of several: sends factors and gradients as they
// become ready, takes in what arrives, inverts what this rank owns and exchanges the results.
//
// How often a layer is called and a gradient finished in a step is learned in the first one, which
// has no plan yet: there, and wherever fewer come, tensors leave in exchange().
class StepSchedule {
 public:
  // `parameters`: those whose gradients travel with each layer of the bank.
  StepSchedule(Communicator& communicator, FactorBank& bank, StepTrace& trace,
               std::vector<std::vector<at::Tensor>> parameters);

  // Plans of the kinds of steps that will come, for the layers of the bank in `order`; this step is
  // of kind `now`, as far as it is not over. What this rank must keep and did not is fetched from a
  // rank that did.
  void adopt(const std::map<StepKind, Plan>& plans, const ModelSpec& model,
             const std::vector<std::size_t>& order, StepKind now);
  bool planned() const { return !steps_.empty(); }
  // Whether inputs and gradients are held until exchange(), as the bulk schedule does.
  bool holds() const { return planned() && schedule_ == FactorSchedule::kBulk; }

  void begin(StepKind kind);
  // Whether messages wait for exchange() from the next step on, so that none travels beside passes.
  void set_quiet(bool quiet) { quiet_ = quiet; }
  // One more call, or gradient of a call, has been added to a factor.
  void computed(FactorId id);
  // Autograd has finished the gradient of a parameter: layer, index among its parameters.
  void gradient_finished(std::size_t layer, std::size_t parameter);

  // Sends and takes in the gradients that are not sent to single owners; exchange() does the rest.
  void synchronize();
  // Everything between the backward pass and the clipping of gradients: on return this rank has all
  // preconditioned gradients (averaged ones, without factors). Returns ⟨V, ∇W⟩ of each layer.
  std::vector<at::Tensor> exchange();
  // Ends the step: what was counted is what later steps are measured by, if this was the first.
  void end();
  // Lets what has left arrive and sends the rest as zeros, for a batch that is not to count.
  void discard();

  // Averages and inverses of all layers on this rank, for a checkpoint; collective.
  void gather_state();
  // The reverse: keeps only what the plan asks for.
  void keep_what_is_needed();

  Bytes buffer_bytes() const;

 private:
  struct Step {
    Plan plan;
    std::vector<ExchangeStep> exchanges;
    std::vector<std::int64_t> exchange_offsets;  // of those that send gradients, in the memory
    std::vector<Category> categories;            // of the messages
    std::unique_ptr<MessagePipeline> pipeline;
  };
  struct Counts {
    std::vector<std::int64_t> a;
    std::vector<std::int64_t> g;
    std::vector<std::vector<std::int64_t>> gradients;
  };
  // Which single rank keeps a factor's average and inverse; all do if none is named.
  struct Home {
    std::optional<int> average;
    std::optional<int> inverse;
  };
  using Homes = std::vector<Home>;
  static std::size_t home_index(FactorId id) {
    return 2 * id.layer + (id.side == FactorSide::kA ? 0 : 1);
  }
  struct Exchanged {
    const ExchangeStep* step;
    at::Tensor buffer;
    Work work;
    std::string name;
  };

  Step& step() { return *current_; }
  at::Device device() const { return memory_.device(); }
  bool mine(const FactorPlacement& factor) const {
    return !factor.owner || *factor.owner == communicator_.rank();
  }
  std::size_t bank_layer(int plan_layer) const {
    return order_[static_cast<std::size_t>(plan_layer)];
  }
  FactorId id_of(const FactorPlacement& factor) const {
    return {bank_layer(factor.layer), factor.side};
  }
  bool complete(const Member& member) const;
  void leave_if_complete(const Member& member);
  void release_naive();
  void leave(const Member& member);
  // A message's factors and where they lie in it.
  std::vector<FactorBank::Packed> factors_of(const Message& message) const;
  void send(const Message& message);
  void send_rest();
  void wait_for(std::size_t message);
  void receive(std::size_t message);
  void receive_gradients(const Message& message);
  std::vector<std::uint32_t> gradient_versions(std::size_t layer) const;
  void fill_gradient(std::size_t layer, at::Tensor slot) const;
  void take_gradient(std::size_t layer, const at::Tensor& slot, double scale) const;
  void exchange_means();
  // For the factors that this rank inverts, by layer of the plan.
  std::map<int, FactorBank::DampingPair> dampings() const;
  void invert_and_exchange();
  void prepare_exchange(std::size_t index);
  void start_exchange(Exchanged& exchanged);
  std::vector<int> layers_of(const ExchangeStep& exchange) const;
  // Where each layer's gradients and its ⟨V, ∇W⟩ lie in the buffer of a broadcast of gradients.
  void for_each_part(const ExchangeStep& exchange, const at::Tensor& buffer,
                     const std::function<void(std::size_t layer, const at::Tensor& gradients,
                                              const at::Tensor& inner)>& visit);
  void finish_exchange(const Exchanged& exchanged);
  void record_channel();
  void move_home(const Homes& homes);
  void share_average(FactorId id, int root);
  void share_inverse(FactorId id, int root);
  at::TensorOptions buffer_options() const;

  Communicator& communicator_;
  FactorBank& bank_;
  StepTrace& trace_;
  const std::vector<std::vector<at::Tensor>> parameters_;

  std::map<StepKind, Step> steps_;
  Step* current_ = nullptr;
  FactorSchedule schedule_ = FactorSchedule::kNone;
  std::vector<std::size_t> order_;    // bank layer of each plan layer
  std::vector<std::size_t> plan_of_;  // and the reverse
  Homes homes_;                       // empty before the first plan
  at::Tensor memory_;                 // of messages and exchanged gradients
  Counts counts_;
  std::optional<Counts> expected_;
  bool naive_released_ = false;
  bool quiet_ = false;
  bool synchronized_ = false;  // the gradients of this step have been taken in
  // Of the gradients of each layer when they left; empty before.
  std::vector<std::vector<std::uint32_t>> versions_;
  std::size_t received_ = 0;  // messages of this step that have been taken in
  std::vector<Exchanged> exchanged_;
  std::vector<at::Tensor> inner_;
};

}  // namespace spdkfac
