// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/sim/passes_stage.h"

#include <algorithm>
#include <optional>

#include "spdkfac/base/error.h"
#include "spdkfac/plan/compute_stream.h"
#include "spdkfac/plan/fusion_planner.h"

namespace spdkfac::sim {
namespace {

bool has_diagonal_means(const Message& message) {
  return message.members.front().kind == TensorKind::kDiagonalMeans;
}

class PassesStage {
 public:
  PassesStage(const StepToSimulate& step, SimulatedRanks& ranks)
      : step_(step),
        plan_(step.plan),
        ranks_(ranks),
        stream_(
            plan::compute_stream(step.model, step.layers, step.costs, plan_.options.factor_schedule,
                                 plan_.options.second_order() && plan_.step != StepKind::kGradients,
                                 makes_locally(plan_))),
        ends_(ranks.streams()) {
    if (makes_locally(plan_)) find_makers();
    ranks_.reserve(stream_.tasks.size() + plan_.messages.size() + 6 * plan_.placements.size());
    for (auto& ends : ends_) ends.reserve(stream_.tasks.size());
  }

  void run() {
    run_stream_and_messages();
    exchange_diagonal_means();
  }

 private:
  std::size_t release_of(const Message& message) const {
    std::size_t release = 0;
    for (const Member& member : message.members) {
      const auto& releases = member.kind == TensorKind::kFactorA   ? stream_.release_a
                             : member.kind == TensorKind::kFactorG ? stream_.release_g
                                                                   : stream_.release_gradient;
      release = std::max(release, releases[static_cast<std::size_t>(member.layer)]);
    }
    return release;
  }

  MemberSize size_of(const Member& member) const {
    return member_size(step_.layer(member.layer), member.kind);
  }

  Seconds time_of(const Message& message) const {
    std::int64_t tensors = 0;
    for (const Member& member : message.members) tensors += size_of(member).tensors;
    return plan::message_time(step_.costs, message.route, message.elements, tensors);
  }

  static bool makes_locally(const Plan& plan) {
    return plan.options.factor_reduce == FactorReduce::kLocal;
  }
  void find_makers() {
    makers_.assign(2 * step_.layers.size(), std::nullopt);
    for (const FactorPlacement& factor : plan_.placements) {
      if (factor.owner) makers_[maker_index(factor.layer, factor.side)] = *factor.owner;
    }
  }
  static std::size_t maker_index(int layer, FactorSide side) {
    return 2 * static_cast<std::size_t>(layer) + (side == FactorSide::kA ? 0 : 1);
  }
  // Nothing where another rank makes the local factor.
  Seconds work_of(std::size_t rank, const plan::StreamTask& task) const {
    if (makers_.empty() || !plan::is_factor(task.kind)) return task.duration;
    const FactorSide side = task.kind == plan::TaskKind::kFactorA ? FactorSide::kA : FactorSide::kG;
    const auto maker = makers_[maker_index(task.layer, side)];
    return !maker || ranks_.stream_of(*maker) == rank ? task.duration : Seconds(0);
  }

  // Announces the tasks [first, end) of the stream.
  void expect_tasks(std::size_t rank, std::size_t first, std::size_t end) {
    Seconds work(0);
    for (std::size_t i = first; i < end; ++i) work += work_of(rank, stream_.tasks[i]);
    ranks_.expect(rank, work, Category::kForwardBackward);
  }

  void advance(std::size_t rank, std::size_t last_task) {
    static constexpr const char* kVerbs[] = {"factor A", "forward", "backward", "factor G"};
    std::vector<Seconds>& ends = ends_[rank];
    while (ends.size() <= last_task) {
      const std::size_t index = ends.size();
      const plan::StreamTask& task = stream_.tasks[index];
      if (index == stream_.join) {
        ranks_.wait_until(rank, ranks_.channel_free());
        if (ranks_.messages_slow()) expect_tasks(rank, stream_.join, stream_.tasks.size());
      }
      if (task_names_.size() <= index) {
        task_names_.push_back(ranks_.label("{} {}", kVerbs[static_cast<std::size_t>(task.kind)],
                                           step_.layer(task.layer).name));
      }
      ranks_.compute(rank, work_of(rank, task), category_of(task.kind), task_names_[index]);
      ends.push_back(ranks_.now(rank));
    }
  }

  // Messages start in plan order. What a rank does before it reaches a message is slowed only by
  // earlier messages, so each can be settled before the next is looked at.
  void run_stream_and_messages() {
    bool behind_join = false;
    if (ranks_.messages_slow()) {
      for (std::size_t rank = 0; rank < ends_.size(); ++rank) expect_tasks(rank, 0, stream_.join);
    }
    for (const Message& message : plan_.messages) {
      if (has_diagonal_means(message)) continue;
      const std::size_t release = release_of(message);
      if (behind_join && release < stream_.join) {
        throw ConfigError(
            "plan: a gradient message follows a factor message in a bulk schedule, which waits for "
            "gradients first; make the plan again");
      }
      behind_join = behind_join || release >= stream_.join;
      Seconds ready(0);
      for (std::size_t rank = 0; rank < ends_.size(); ++rank) {
        advance(rank, release);
        ready = std::max(ready, ends_[rank][release]);
      }
      arrivals_.push_back(ranks_.carry(ready, time_of(message),
                                       plan::category_of(message, step_.model),
                                       ranks_.label("{}", describe(message)), message.elements));
    }
    for (std::size_t rank = 0; rank < ends_.size(); ++rank) {
      advance(rank, stream_.tasks.size() - 1);
    }
    const bool on_arrival = step_.costs.overheads.unpack_on_arrival;
    if (on_arrival) unpack_factors();
    ranks_.all_wait_until(ranks_.channel_free());
    if (!on_arrival) unpack_factors();
  }

  // In the order of the plan, each when its message has arrived. A factor that was reduced is
  // unpacked by its root alone.
  void unpack_factors() {
    if (plan_.world == 1) return;
    auto arrival = arrivals_.begin();
    for (const Message& message : plan_.messages) {
      if (has_diagonal_means(message)) continue;
      ranks_.all_wait_until(*arrival);
      ++arrival;
      for (const Member& member : message.members) {
        if (member.kind != TensorKind::kFactorA && member.kind != TensorKind::kFactorG) continue;
        const double elements = static_cast<double>(size_of(member).elements);
        const Seconds work = step_.host() + step_.costs.overheads.unpack_per_element * elements;
        const auto label =
            ranks_.label("unpack factor {} {}", member.kind == TensorKind::kFactorA ? "A" : "G",
                         step_.layer(member.layer).name);
        if (message.route.root) {
          ranks_.compute(ranks_.stream_of(*message.route.root), work, Category::kFactorComp, label);
        } else {
          ranks_.compute_everywhere(work, Category::kFactorComp, label);
        }
      }
    }
  }

  void exchange_diagonal_means() {
    for (const Message& message : plan_.messages) {
      if (!has_diagonal_means(message)) continue;
      ranks_.all_wait_until(ranks_.carry(ranks_.last(), time_of(message), Category::kFactorComm,
                                         ranks_.label("{}", describe(message)), message.elements));
    }
  }

  const StepToSimulate& step_;
  const Plan& plan_;
  SimulatedRanks& ranks_;
  plan::ComputeStream stream_;
  std::vector<std::optional<int>> makers_;  // of local factors, A and G of each layer
  std::vector<std::uint32_t> task_names_;
  std::vector<std::vector<Seconds>> ends_;  // by rank, of the stream's tasks done so far
  std::vector<Seconds> arrivals_;           // of factors and gradients, as planned
};

}  // namespace

void simulate_passes(const StepToSimulate& step, SimulatedRanks& ranks) {
  PassesStage(step, ranks).run();
}

}  // namespace spdkfac::sim
