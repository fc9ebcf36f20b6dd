// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/message_launcher.h"

#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/error.h"

namespace spdkfac::runtime {

MessageLauncher::MessageLauncher(Communicator& communicator, FactorBank& bank,
                                 const LayerGradients& gradients, StepRecorder& recorder)
    : communicator_(communicator),
      bank_(bank),
      gradients_(gradients),
      recorder_(recorder),
      readiness_(gradients.tensors()),
      marks_(bank.size()) {}

void MessageLauncher::reserve(std::int64_t elements, const at::TensorOptions& options) {
  if (!buffer_.defined() || buffer_.numel() < elements) buffer_ = at::zeros({elements}, options);
}

void MessageLauncher::follow(const PlannedStep& step) {
  step_ = &step;
  messages_.clear();
  for (const Message& message : step.messages()) {
    messages_.push_back({message.members.size(), Work()});
  }
  ready_.assign(step.tensors(), false);
  next_ = 0;
  broadcasts_.assign(step.broadcasts().size(), Work());
  waiting_broadcasts_.clear();
}

void MessageLauncher::begin(const PlannedStep* step, bool defer) {
  SPDKFAC_CHECK(next_ == 0 || next_ == messages_.size(), "a step ends with messages not launched");
  readiness_.begin();
  marks_.assign(bank_.size(), {});
  naive_released_ = false;
  held_.clear();
  defers_ = defer;
  paused_ = defer || holds_;
  if (step != nullptr) follow(*step);
}

// --- readiness ---

void MessageLauncher::factor_added(FactorId id) {
  readiness_.count(id);
  if (step_ == nullptr || !readiness_.learned()) return;
  const std::optional<int> layer = step_->order().planned(id.layer);
  if (!layer) return;
  const Member member = factor_member(*layer, id.side);
  if (!step_->contains(member)) return;
  if (is_ready(member)) {
    throw ConfigError(fmt::format(
        "kfac: layer {} was called {} times in this step, but {} times in the first one; on "
        "several ranks its factor has already been sent: call it equally often in each step",
        bank_.name(id.layer), readiness_.counted(id), readiness_.expected(id)));
  }
  switch (step_->plan().options.factor_schedule) {
    case FactorSchedule::kPipelined:
      if (id.side == FactorSide::kG) release_factors_g();
      return leave_if_complete(member);
    case FactorSchedule::kNaive:
      if (id.side == FactorSide::kG) release_factors_a();
      return;
    case FactorSchedule::kBulk:
    case FactorSchedule::kNone:
      return;
  }
}

void MessageLauncher::gradient_finished(std::size_t layer, std::size_t gradient) {
  readiness_.count(layer, gradient);
  if (step_ == nullptr || !readiness_.learned()) return;
  const Member member{TensorKind::kGradient, step_->order().planned(layer).value()};
  if (is_ready(member)) {
    throw ConfigError(fmt::format(
        "kfac: a gradient of layer {} was finished more often in this step than in the first one; "
        "on several ranks it has already been sent: run equally many backward passes in each step",
        bank_.name(layer)));
  }
  leave_if_complete(member);
}

bool MessageLauncher::complete(const Member& member) const {
  if (is_factor(member)) {
    const FactorId id = step_->order().factor_of(member);
    // Those of a partial layer come as the examples are divided, which differs from step to step.
    if (bank_.state(id.layer).layer().partial) return false;
    return readiness_.complete(id);
  }
  return readiness_.gradients_complete(step_->order().tracked(member.layer));
}

void MessageLauncher::leave_if_complete(const Member& member) {
  if (!complete(member)) return;
  // The scale of G depends on all passes.
  if (member.kind == TensorKind::kFactorG &&
      !readiness_.passes_complete(bank_.passes().with_gradients())) {
    held_.push_back(member);
  } else {
    leave(member);
  }
}

void MessageLauncher::release_factors_g() {
  if (!readiness_.passes_complete(bank_.passes().with_gradients())) return;
  for (const Member& member : std::exchange(held_, {})) {
    if (!is_ready(member)) leave_if_complete(member);
  }
}

// Naive: A may leave when the forward pass has ended, which the first gradient shows.
void MessageLauncher::release_factors_a() {
  if (std::exchange(naive_released_, true)) return;
  for (std::size_t layer = 0; layer < step_->order().tracked().size(); ++layer) {
    const Member member{TensorKind::kFactorA, static_cast<int>(layer)};
    if (step_->contains(member)) leave_if_complete(member);
  }
}

// --- packing and launching ---

void MessageLauncher::leave(const Member& member) {
  if (member.kind == TensorKind::kGradient) {
    const std::size_t layer = step_->order().tracked(member.layer);
    gradients_.write(layer, slot(member));
    marks_[layer] = gradients_.marks(layer);
  }
  mark_ready(member);
}

void MessageLauncher::mark_ready(const Member& member) {
  const PlannedStep::Place& place = step_->place(member);
  SPDKFAC_CHECK(!ready_[place.index], "a tensor is ready twice in a step");
  ready_[place.index] = true;
  if (--messages_[place.message].missing == 0) {
    // Cost models of the bulk schedule count packing as a part of factor times.
    const bool timed = step_->plan().options.factor_schedule == FactorSchedule::kBulk;
    bank_.pack(factors_of(step_->messages()[place.message]), timed);
  }
  if (!paused_) launch_ready();
}

void MessageLauncher::launch_deferred() {
  paused_ = false;
  launch_ready();
}

void MessageLauncher::launch_ready() {
  for (; next_ < messages_.size() && messages_[next_].missing == 0; ++next_) {
    messages_[next_].work = launch(next_);
  }
}

Work MessageLauncher::launch(std::size_t message) {
  const Route& route = step_->messages()[message].route;
  const PlannedStep::Outgoing& what = step_->outgoing(message);
  return route.op == CollectiveOp::kReduce
             ? communicator_.reduce_async(part(what.range), *route.root, what.name, what.load())
             : communicator_.all_reduce_async(part(what.range), what.name, what.load());
}

void MessageLauncher::send(std::size_t message) {
  for (const Member& member : step_->messages()[message].members) {
    if (!is_ready(member)) leave(member);
  }
}

void MessageLauncher::wait(std::size_t message) {
  SPDKFAC_CHECK(message < next_, "waiting for a message that has not left");
  const StepSpan waiting(recorder_, StepPart::kWait, buffer_.device(), "wait");
  messages_[message].work.wait();
}

at::Tensor MessageLauncher::part(const BufferRange& range) const {
  return buffer_.narrow(0, range.offset, range.elements);
}

at::Tensor MessageLauncher::slot(const Member& member) const {
  return part(step_->place(member).range);
}

std::vector<FactorBank::Packed> MessageLauncher::factors_of(const Message& message) const {
  std::vector<FactorBank::Packed> factors;
  for (const Member& member : message.members) {
    if (!is_factor(member)) continue;
    factors.push_back({step_->order().factor_of(member), slot(member),
                       buffer_.narrow(0, step_->place(member).count, 1)});
  }
  return factors;
}

bool MessageLauncher::gradients_changed(std::size_t layer) const {
  return !marks_[layer].empty() && gradients_.marks(layer) != marks_[layer];
}

// --- broadcasts ---

at::Tensor MessageLauncher::broadcast_buffer(std::size_t broadcast) const {
  return part(step_->outgoing_broadcast(broadcast).range);
}

void MessageLauncher::broadcast(std::size_t broadcast) {
  SPDKFAC_CHECK(next_ == messages_.size(), "a broadcast before all messages have left");
  if (defers_) {
    waiting_broadcasts_.push_back(broadcast);
  } else {
    launch_broadcast(broadcast);
  }
}

void MessageLauncher::launch_broadcasts() {
  for (const std::size_t broadcast : std::exchange(waiting_broadcasts_, {})) {
    launch_broadcast(broadcast);
  }
}

void MessageLauncher::launch_broadcast(std::size_t broadcast) {
  const PlannedStep::Outgoing& what = step_->outgoing_broadcast(broadcast);
  broadcasts_[broadcast] = communicator_.broadcast_async(
      broadcast_buffer(broadcast), step_->broadcasts()[broadcast].root, what.name, what.load());
}

void MessageLauncher::wait_for_broadcast(std::size_t broadcast) {
  const StepSpan waiting(recorder_, StepPart::kWait, buffer_.device(), "wait");
  broadcasts_[broadcast].wait();
}

// --- the end of a step ---

void MessageLauncher::record() const {
  if (!recorder_.on()) return;
  const auto add = [&](const PlannedStep::Outgoing& outgoing, const Work& work) {
    recorder_.add({outgoing.category, outgoing.name, outgoing.elements, work});
  };
  for (std::size_t i = 0; i < messages_.size(); ++i) add(step_->outgoing(i), messages_[i].work);
  for (std::size_t i = 0; i < broadcasts_.size(); ++i) {
    add(step_->outgoing_broadcast(i), broadcasts_[i]);
  }
}

void MessageLauncher::discard() {
  if (step_ == nullptr) return;
  launch_deferred();
  for (std::size_t message = 0; message < messages_.size(); ++message) {
    for (const Member& member : step_->messages()[message].members) {
      if (is_ready(member)) continue;
      if (!is_factor(member)) slot(member).zero_();  // factors are packed
      mark_ready(member);
    }
    messages_[message].work.wait();
  }
}

Bytes MessageLauncher::buffer_bytes() const {
  return buffer_.defined() ? Bytes(static_cast<std::int64_t>(buffer_.nbytes())) : Bytes();
}

}  // namespace spdkfac::runtime
