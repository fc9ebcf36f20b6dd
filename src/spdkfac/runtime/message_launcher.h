// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spdkfac/comm/communicator.h"
#include "spdkfac/runtime/factor_bank.h"
#include "spdkfac/runtime/layer_gradients.h"
#include "spdkfac/runtime/planned_step.h"
#include "spdkfac/runtime/readiness.h"

namespace spdkfac::runtime {

// Sends all messages of a step. A message leaves when all its members are ready and all earlier
// messages have left, so every rank launches the same sequence however its computation goes.
// Factors are packed when the last member of their message is ready, gradients are copied as they
// become so.
//
// How often a layer is called and a gradient finished is learned in the first step: there, and
// wherever fewer come, tensors leave in send().
class MessageLauncher {
 public:
  MessageLauncher(Communicator& communicator, FactorBank& bank, const LayerGradients& gradients,
                  StepRecorder& recorder);

  // The buffer of all messages; what it held is lost when it grows.
  void reserve(std::int64_t elements, const at::TensorOptions& options);
  // Follows this plan from now on, with what has been counted in the step so far. Before the first
  // plan nothing leaves. The step must live until the next one is followed.
  void follow(const PlannedStep& step);
  // The next step of this plan. With `defer` no message leaves before launch_deferred(), and no
  // broadcast before launch_broadcasts(), so that none travels while something is computed.
  void begin(const PlannedStep* step, bool defer);
  // From the next step on no message leaves before launch_deferred(); broadcasts do.
  void hold() { holds_ = true; }
  void end() { readiness_.end(bank_.passes().with_gradients()); }
  // Whether autograd has finished a gradient of the layer's weight in this step.
  bool has_gradient(std::size_t layer) const { return readiness_.counted(layer, 0) > 0; }
  bool defers() const { return defers_; }

  // One more call of a layer, or gradient of a call, is part of a factor.
  void factor_added(FactorId id);
  bool called(std::size_t layer) const { return readiness_.counted({layer, FactorSide::kA}) > 0; }
  // Autograd has finished a gradient of a layer.
  void gradient_finished(std::size_t layer, std::size_t gradient);

  void launch_deferred();
  // Lets those members leave that have not yet.
  void send(std::size_t message);
  void wait(std::size_t message);
  // Where a member's elements lie, before it leaves and when its message has arrived.
  at::Tensor slot(const Member& member) const;
  // A message's factors and where they lie in it.
  std::vector<FactorBank::Packed> factors_of(const Message& message) const;
  // Whether the gradients of a layer were changed, replaced or dropped after they had left.
  bool gradients_changed(std::size_t layer) const;

  // What the root fills before broadcast(), and the others find after wait_for_broadcast().
  at::Tensor broadcast_buffer(std::size_t broadcast) const;
  void broadcast(std::size_t broadcast);
  void launch_broadcasts();
  void wait_for_broadcast(std::size_t broadcast);

  // Shows what was sent in this step to whoever observes.
  void record() const;
  // Lets what has left arrive and sends the rest as zeros, for a batch that is not to count.
  void discard();

  Bytes buffer_bytes() const;

 private:
  struct Launch {
    std::size_t missing = 0;
    Work work;
  };
  at::Tensor part(const BufferRange& range) const;
  bool complete(const Member& member) const;
  void leave_if_complete(const Member& member);
  void leave(const Member& member);
  void release_factors_a();
  void release_factors_g();
  void mark_ready(const Member& member);
  bool is_ready(const Member& member) const { return ready_[step_->place(member).index]; }
  void launch_ready();
  Work launch(std::size_t message);
  void launch_broadcast(std::size_t broadcast);

  Communicator& communicator_;
  FactorBank& bank_;
  const LayerGradients& gradients_;
  StepRecorder& recorder_;
  Readiness readiness_;
  at::Tensor buffer_;

  const PlannedStep* step_ = nullptr;  // null: no plan yet
  bool holds_ = false;
  bool defers_ = false;
  bool paused_ = false;  // messages wait for launch_deferred()
  std::vector<Launch> messages_;
  std::vector<bool> ready_;  // members
  std::size_t next_ = 0;     // message to leave
  bool naive_released_ = false;
  std::vector<Member> held_;  // G of layers that earlier passes have completed
  // Of the gradients of each layer when they left; empty before.
  std::vector<std::vector<GradientMark>> marks_;
  std::vector<Work> broadcasts_;
  std::vector<std::size_t> waiting_broadcasts_;
};

}  // namespace spdkfac::runtime
