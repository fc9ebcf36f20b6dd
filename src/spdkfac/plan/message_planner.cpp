// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/message_planner.h"

#include <algorithm>
#include <map>

#include "spdkfac/plan/fusion_planner.h"

namespace spdkfac::plan {
namespace {

// Tensors waiting for the channel, parallel to the items of a FusionQueue.
struct Queue {
  std::vector<Member> members;
  FusionQueue fusion;
};

class MessagePlanner {
 public:
  MessagePlanner(const ModelSpec& model, const ComputeStream& stream, const CostModel& costs,
                 const PlanOptions& options, std::span<const FactorPlacement> factors)
      : model_(model),
        stream_(stream),
        costs_(costs),
        options_(options),
        owners_a_(model.layers.size()),
        owners_g_(model.layers.size()),
        sends_gradient_(model.layers.size(), false) {
    for (const FactorPlacement& factor : factors) {
      const auto layer = static_cast<std::size_t>(factor.layer);
      (factor.side == FactorSide::kA ? owners_a_ : owners_g_)[layer] = factor.owner;
      if (factor.sends_gradient) sends_gradient_[layer] = true;
    }
  }

  std::vector<Message> messages() {
    const std::vector<Seconds> ends = end_times(stream_);
    std::vector<Queue> queues = gradient_queues(ends);
    if (stream_.join < stream_.tasks.size()) {  // bulk: gradients first, then factors
      launch(queues);
      const std::vector<Seconds> joined = end_times(stream_, channel_free_);
      queues = factor_queues(joined);
    } else if (!stream_.release_a.empty()) {
      for (Queue& queue : factor_queues(ends)) queues.push_back(std::move(queue));
    }
    launch(queues);
    return std::move(messages_);
  }

 private:
  Route factor_route(const std::optional<int>& owner) const {
    if (options_.factor_reduce == FactorReduce::kAllReduce || !owner) return {};
    return {CollectiveOp::kReduce, owner};
  }

  // Gradients in backward order.
  std::vector<Queue> gradient_queues(const std::vector<Seconds>& ends) const {
    const bool by_threshold = options_.second_order() && options_.fusion != Fusion::kOptimal;
    Queue queue;
    queue.fusion.rule = {by_threshold ? Fusion::kThreshold : options_.fusion,
                         options_.threshold_bytes};
    for (std::size_t l = model_.layers.size(); l-- > 0;) {
      const Route route = sends_gradient_[l] ? Route{CollectiveOp::kReduce, owners_a_[l]} : Route{};
      add(queue, TensorKind::kGradient, l, route, ends[stream_.release_gradient[l]]);
    }
    return {queue};
  }

  std::vector<Queue> factor_queues(const std::vector<Seconds>& ends) const {
    Queue a;
    Queue g;
    a.fusion.rule = g.fusion.rule = {options_.fusion, options_.threshold_bytes};
    const std::size_t layers = model_.layers.size();
    for (std::size_t l = 0; l < layers; ++l) {
      add(a, TensorKind::kFactorA, l, factor_route(owners_a_[l]), ends[stream_.release_a[l]]);
    }
    for (std::size_t l = layers; l-- > 0;) {
      add(g, TensorKind::kFactorG, l, factor_route(owners_g_[l]), ends[stream_.release_g[l]]);
    }
    return {a, g};
  }

  void add(Queue& queue, TensorKind kind, std::size_t layer, const Route& route,
           Seconds ready) const {
    const MemberSize size = member_size(model_.layers[layer], kind);
    queue.members.push_back({kind, static_cast<int>(layer)});
    queue.fusion.items.push_back({ready, size.elements, size.tensors, route});
  }

  void launch(std::vector<Queue>& queues) {
    if (options_.fusion == Fusion::kOptimal) {
      launch_jointly(queues);
      return;
    }
    std::vector<FusionQueue> fusion;
    for (Queue& queue : queues) fusion.push_back(std::move(queue.fusion));
    for (const QueuedRange& next : merge_queues(fusion, costs_, channel_free_)) {
      append(queues[next.queue].members, fusion[next.queue].items, next.range);
    }
  }

  // One sequence in the order of readiness; at equal times in the order of the queues.
  void launch_jointly(const std::vector<Queue>& queues) {
    std::vector<std::pair<Member, FusionItem>> all;
    for (const Queue& queue : queues) {
      for (std::size_t i = 0; i < queue.members.size(); ++i) {
        all.emplace_back(queue.members[i], queue.fusion.items[i]);
      }
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.second.ready < b.second.ready; });
    std::vector<Member> members;
    std::vector<FusionItem> items;
    for (const auto& [member, item] : all) {
      members.push_back(member);
      items.push_back(item);
    }
    const auto ranges =
        fuse(items, {Fusion::kOptimal, options_.threshold_bytes}, costs_, channel_free_);
    for (const MessageRange& range : ranges) append(members, items, range);
    channel_free_ = finish_time(items, ranges, costs_, channel_free_);
  }

  void append(const std::vector<Member>& members, const std::vector<FusionItem>& items,
              MessageRange range) {
    Message message;
    message.route = items[range.begin].route;
    for (std::size_t i = range.begin; i < range.end; ++i) {
      message.members.push_back(members[i]);
      message.elements += items[i].elements;
    }
    messages_.push_back(std::move(message));
  }

  const ModelSpec& model_;
  const ComputeStream& stream_;
  const CostModel& costs_;
  const PlanOptions& options_;
  std::vector<std::optional<int>> owners_a_;
  std::vector<std::optional<int>> owners_g_;
  std::vector<bool> sends_gradient_;
  Seconds channel_free_;
  std::vector<Message> messages_;
};

}  // namespace

std::vector<Message> plan_messages(const ModelSpec& model, const ComputeStream& stream,
                                   const CostModel& costs, const PlanOptions& options,
                                   std::span<const FactorPlacement> factors) {
  return MessagePlanner(model, stream, costs, options, factors).messages();
}

std::optional<Message> diagonal_means_message(const ModelSpec& model, const PlanOptions& options,
                                              std::span<const FactorPlacement> factors) {
  if (options.factor_reduce != FactorReduce::kOwner) return std::nullopt;
  std::map<int, std::optional<int>> owner_of_a;
  std::map<int, std::optional<int>> owner_of_g;
  for (const FactorPlacement& factor : factors) {
    (factor.side == FactorSide::kA ? owner_of_a : owner_of_g)[factor.layer] = factor.owner;
  }
  Message message;
  for (const auto& [layer, owner] : owner_of_a) {
    if (owner == owner_of_g[layer]) continue;  // who inverts one of them holds both
    message.members.push_back({TensorKind::kDiagonalMeans, layer});
    message.elements +=
        member_size(model.layers[static_cast<std::size_t>(layer)], TensorKind::kDiagonalMeans)
            .elements;
  }
  if (message.members.empty()) return std::nullopt;
  return message;
}

}  // namespace spdkfac::plan
