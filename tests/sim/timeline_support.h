// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "spdkfac/plan/plan.h"
#include "spdkfac/sim/simulator.h"
#include "spdkfac/trace/trace.h"
#include "support/models.h"

// Plans written by hand, and lanes of a trace in a form that reads like a timeline.
namespace spdkfac::timeline {

constexpr Category kPass = Category::kForwardBackward;
constexpr Category kGradComm = Category::kGradientComm;
constexpr Category kFactor = Category::kFactorComp;
constexpr Category kFactorComm = Category::kFactorComm;
constexpr Category kInverse = Category::kInverseComp;
constexpr Category kInverseComm = Category::kInverseComm;
constexpr Category kPrecondition = Category::kPrecondition;

// Seconds and elements of the model that most timelines share:
//       d_A d_G   forward backward A G    packed A, packed G, gradient
//   l0   3   2       1       2     1 2        6         3         6
//   l1   2   1       2       3     4 1        3         1         2
inline ModelSpec two_layers() {
  ModelSpec model = support::tiny_model({{3, 2}, {2, 1}});
  model.layers[0].times = support::layer_times(1, 2, 1, 2);
  model.layers[1].times = support::layer_times(2, 3, 4, 1);
  return model;
}

// One event of a lane; where in it is what, the test's comments say.
struct Slot {
  Category category = kPass;
  double start = 0;
  double end = 0;
  bool operator==(const Slot&) const = default;
};
using Timeline = std::vector<Slot>;

inline void PrintTo(const Slot& slot, std::ostream* out) {
  *out << category_name(slot.category) << ' ' << slot.start << '-' << slot.end;
}

// Events without duration are left out: what costs nothing in a test is not part of its timeline.
inline Timeline lane(const IterationResult& simulation, int rank, Lane lane) {
  Timeline result;
  for (const TraceEvent& event : simulation.trace.events()) {
    if (event.rank != rank || event.lane != lane || event.duration <= Seconds(0)) continue;
    result.push_back({event.category, event.start.value(), event.end().value()});
  }
  return result;
}
inline Timeline compute(const IterationResult& simulation, int rank) {
  return lane(simulation, rank, Lane::kCompute);
}
inline Timeline channel(const IterationResult& simulation, int rank = 0) {
  return lane(simulation, rank, Lane::kChannel);
}
// The part of a timeline from `start` on.
inline Timeline from(double start, Timeline timeline) {
  std::erase_if(timeline, [start](const Slot& slot) { return slot.start < start; });
  return timeline;
}

inline Member factor_a(int layer) { return {TensorKind::kFactorA, layer}; }
inline Member factor_g(int layer) { return {TensorKind::kFactorG, layer}; }
inline Member gradient(int layer) { return {TensorKind::kGradient, layer}; }
inline Member diagonal_means(int layer) { return {TensorKind::kDiagonalMeans, layer}; }

inline Message all_reduce(std::vector<Member> members, std::int64_t elements) {
  return {std::move(members), elements, {}};
}
inline Message reduce_to(int root, std::vector<Member> members, std::int64_t elements) {
  return {std::move(members), elements, {CollectiveOp::kReduce, root}};
}

constexpr std::optional<int> kEveryone = std::nullopt;

inline FactorPlacement invert_a(int layer, std::int64_t dim, std::optional<int> owner) {
  return {layer, FactorSide::kA, dim, owner, false};
}
inline FactorPlacement invert_g(int layer, std::int64_t dim, std::optional<int> owner) {
  return {layer, FactorSide::kG, dim, owner, false};
}

struct LayerOwner {
  int layer = 0;
  std::optional<int> owner;
};
// A and G of each layer in the order given; owners send gradients.
inline std::vector<FactorPlacement> layers_owned(const ModelSpec& model,
                                                 std::initializer_list<LayerOwner> owners) {
  std::vector<FactorPlacement> factors;
  for (const auto& [layer, owner] : owners) {
    const LayerSpec& spec = model.layers.at(static_cast<std::size_t>(layer));
    factors.push_back({layer, FactorSide::kA, spec.d_a, owner, owner.has_value()});
    factors.push_back({layer, FactorSide::kG, spec.d_g, owner, owner.has_value()});
  }
  return factors;
}
// A and G of every layer, inverted by every worker.
inline std::vector<FactorPlacement> replicated(const ModelSpec& model) {
  std::vector<FactorPlacement> factors;
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    factors.push_back(invert_a(static_cast<int>(l), model.layers[l].d_a, kEveryone));
    factors.push_back(invert_g(static_cast<int>(l), model.layers[l].d_g, kEveryone));
  }
  return factors;
}

inline Plan by_hand(const ModelSpec& model, int world, FactorSchedule schedule,
                    std::vector<Message> messages, std::vector<FactorPlacement> factors = {},
                    StepKind step = StepKind::kFull) {
  Plan plan;
  plan.algorithm = "by-hand";
  plan.model = model.name;
  plan.world = world;
  plan.step = step;
  plan.options.factor_schedule = schedule;
  for (const Message& message : messages) {
    const bool reduced = message.route.op == CollectiveOp::kReduce;
    if (reduced && message.members.front().kind != TensorKind::kGradient) {
      plan.options.factor_reduce = FactorReduce::kOwner;
    }
  }
  plan.messages = std::move(messages);
  plan.placements = std::move(factors);
  return plan;
}

// An inverse costs as many seconds as its factor has rows.
inline InverseCost one_second_per_row() { return CubicInverse{0, 1, 0, 0}; }

// Layer l preconditions in 2·d_A·d_G·(d_A+d_G) / flops_per_second.
inline ComputeRates precondition_rate(double flops_per_second) {
  return {FlopsPerSecond(1), FlopsPerSecond(1), FlopsPerSecond(flops_per_second)};
}

}  // namespace spdkfac::timeline
