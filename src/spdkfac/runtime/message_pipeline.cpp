// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/message_pipeline.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "spdkfac/base/check.h"

namespace spdkfac {
namespace {

// Messages begin on a line of the cache.
constexpr std::int64_t kAlignment = 16;

std::int64_t aligned(std::int64_t elements) {
  return (elements + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

MessagePipeline::MessagePipeline(const Plan& plan, const ModelSpec& model,
                                 Communicator& communicator, Fill fill)
    : communicator_(communicator), fill_(std::move(fill)) {
  std::int64_t offset = 0;
  for (const Message& message : plan.messages) {
    std::int64_t inside = offset;
    for (const Member& member : message.members) {
      const std::int64_t elements =
          member_size(model.layers[static_cast<std::size_t>(member.layer)], member.kind).elements;
      index_[key(member)] = places_.size();
      places_.push_back({messages_.size(), inside, elements, false});
      inside += elements;
    }
    SPDKFAC_CHECK(inside - offset == message.elements, "a message's members differ from its size");
    messages_.push_back({message, describe(message), offset, message.members.size(), Work()});
    offset += aligned(message.elements);
  }
}

std::int64_t MessagePipeline::elements(const Plan& plan) {
  std::int64_t total = 0;
  for (const Message& message : plan.messages) total += aligned(message.elements);
  return total;
}

void MessagePipeline::use_memory(const at::Tensor& memory) { memory_ = memory; }

std::size_t MessagePipeline::index_of(const Member& member) const {
  const auto found = index_.find(key(member));
  SPDKFAC_CHECK(found != index_.end(), "a tensor that the plan does not send");
  return found->second;
}

at::Tensor MessagePipeline::slot(const Member& member) const {
  const Place& where = places_[index_of(member)];
  return memory_.narrow(0, where.offset, where.elements);
}

bool MessagePipeline::is_ready(const Member& member) const {
  return places_[index_of(member)].ready;
}

void MessagePipeline::ready(const Member& member) {
  Place& where = places_[index_of(member)];
  SPDKFAC_CHECK(!std::exchange(where.ready, true), "a tensor is ready twice in a step");
  if (--messages_[where.message].missing == 0) fill_(messages_[where.message].message);
  if (!held_) launch_ready();
}

void MessagePipeline::launch_held() {
  held_ = false;
  launch_ready();
}

void MessagePipeline::launch_ready() {
  for (; next_ < messages_.size() && messages_[next_].missing == 0; ++next_) {
    messages_[next_].work = launch(messages_[next_]);
  }
}

Work MessagePipeline::launch(const Launch& launch) const {
  const at::Tensor buffer = memory_.narrow(0, launch.offset, launch.message.elements);
  const Route& route = launch.message.route;
  return route.op == CollectiveOp::kReduce
             ? communicator_.reduce_async(buffer, *route.root, launch.name)
             : communicator_.all_reduce_async(buffer, launch.name);
}

void MessagePipeline::wait(std::size_t index) const {
  SPDKFAC_CHECK(index < next_, "waiting for a message that has not left");
  messages_[index].work.wait();
}

void MessagePipeline::reset(bool held) {
  SPDKFAC_CHECK(next_ == 0 || next_ == messages_.size(), "a step ends with messages not launched");
  for (Launch& launch : messages_) {
    launch.missing = launch.message.members.size();
    launch.work = Work();
  }
  for (Place& where : places_) where.ready = false;
  next_ = 0;
  held_ = held;
}

}  // namespace spdkfac
