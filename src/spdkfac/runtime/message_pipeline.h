// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spdkfac/comm/communicator.h"
#include "spdkfac/plan/plan.h"

namespace spdkfac {

// The messages of one plan: their buffers, and their launch in the plan's order. A message leaves
// when all its members are ready and all earlier messages have left, so every rank launches the
// same sequence however its computation goes.
class MessagePipeline {
 public:
  // What writes those members of a message that come together; called when all are ready.
  using Fill = std::function<void(const Message&)>;
  // The pipeline lies in `memory`, a buffer of at least elements() that others may use between
  // steps.
  MessagePipeline(const Plan& plan, const ModelSpec& model, Communicator& communicator, Fill fill);
  static std::int64_t elements(const Plan& plan);
  void use_memory(const at::Tensor& memory);

  bool contains(const Member& member) const { return index_.contains(key(member)); }
  // Where a member's elements go; they must be there before ready(), or `fill` writes them.
  at::Tensor slot(const Member& member) const;
  // Marks a member and launches what may leave now. Once per step.
  void ready(const Member& member);
  bool is_ready(const Member& member) const;

  std::size_t size() const { return messages_.size(); }
  const Message& message(std::size_t index) const { return messages_[index].message; }
  // Waits for the message, which must have left.
  void wait(std::size_t index) const;
  const Work& work(std::size_t index) const { return messages_[index].work; }
  const std::string& name(std::size_t index) const { return messages_[index].name; }

  // The next step: nothing is ready, and with `held` nothing leaves before launch_held().
  void reset(bool held = false);
  void launch_held();

 private:
  struct Launch {
    Message message;
    std::string name;
    std::int64_t offset = 0;
    std::size_t missing = 0;
    Work work;
  };
  struct Place {
    std::size_t message = 0;
    std::int64_t offset = 0;
    std::int64_t elements = 0;
    bool ready = false;
  };
  using Key = std::pair<TensorKind, int>;
  static Key key(const Member& member) { return {member.kind, member.layer}; }
  std::size_t index_of(const Member& member) const;
  void launch_ready();
  Work launch(const Launch& launch) const;

  Communicator& communicator_;
  Fill fill_;
  std::vector<Launch> messages_;
  std::map<Key, std::size_t> index_;  // into places_
  std::vector<Place> places_;
  at::Tensor memory_;
  std::size_t next_ = 0;
  bool held_ = false;
};

}  // namespace spdkfac
