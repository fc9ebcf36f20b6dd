// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "spdkfac/comm/communicator.h"
#include "spdkfac/plan/plan.h"
#include "spdkfac/runtime/layer_order.h"

namespace spdkfac::runtime {

// A part of the buffer that all messages of a step lie in, in elements.
struct BufferRange {
  std::int64_t offset = 0;
  std::int64_t elements = 0;
};

// The plan of one kind of step, and where each of its messages and their members lie in the buffer.
// Behind its members a message has the numbers of examples of its factors, one element each.
// Broadcast inverses lie where their factors have been, which are not needed any more;
// eigenvectors, which are larger, behind all messages.
class PlannedStep {
 public:
  PlannedStep(Plan plan, const ModelSpec& model, LayerOrder order);

  const Plan& plan() const { return plan_; }
  const LayerOrder& order() const { return order_; }

  struct Outgoing {
    std::string name;  // in logs, traces and errors
    Category category = Category::kGradientComm;
    BufferRange range;          // of all that is sent
    std::int64_t elements = 0;  // of the plan
    std::int64_t tensors = 1;

    Load load() const { return {elements, tensors}; }
  };
  const std::vector<Message>& messages() const { return plan_.messages; }
  const Outgoing& outgoing(std::size_t message) const { return messages_[message]; }
  // In the order in which they leave, behind all messages.
  const std::vector<ResultBroadcast>& broadcasts() const { return broadcasts_; }
  const Outgoing& outgoing_broadcast(std::size_t broadcast) const {
    return outgoing_broadcasts_[broadcast];
  }

  // A tensor of a message.
  struct Place {
    std::size_t index = 0;  // among all tensors of the step
    std::size_t message = 0;
    BufferRange range;
    std::int64_t count = 0;  // of a factor: where the number of its examples lies
  };
  bool contains(const Member& member) const { return places_.contains(key(member)); }
  const Place& place(const Member& member) const;
  std::size_t tensors() const { return places_.size(); }

  bool defers_factors() const {
    return plan_.options.factor_schedule == FactorSchedule::kBulk &&
           plan_.step != StepKind::kGradients;
  }
  std::int64_t buffer_elements() const { return buffer_elements_; }

 private:
  using Key = std::pair<TensorKind, int>;
  static Key key(const Member& member) { return {member.kind, member.layer}; }
  void lay_out_messages(const ModelSpec& model);
  void lay_out_broadcasts(const ModelSpec& model);

  Plan plan_;
  LayerOrder order_;
  std::vector<ResultBroadcast> broadcasts_;
  std::vector<Outgoing> messages_;
  std::vector<Outgoing> outgoing_broadcasts_;
  std::map<Key, Place> places_;
  std::int64_t buffer_elements_ = 0;
};

// The layers whose gradients a broadcast brings, by their numbers in the plan: each once, where its
// second factor stands.
std::vector<int> layers_of(const ResultBroadcast& broadcast, const Plan& plan);

}  // namespace spdkfac::runtime
