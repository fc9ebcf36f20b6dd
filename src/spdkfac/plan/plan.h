// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "spdkfac/base/category.h"
#include "spdkfac/base/factor_side.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/plan/plan_options.h"
#include "spdkfac/plan/refresh_intervals.h"

namespace spdkfac {

enum class CollectiveOp { kAllReduce, kReduce };
// kDiagonalMeans: the means of the diagonals of A and G of one layer, for each of its groups, which
// `pi` damping needs where a factor lives only with its owner.
enum class TensorKind { kFactorA, kFactorG, kGradient, kDiagonalMeans };

// How a message travels; only tensors of one route share a message.
struct Route {
  CollectiveOp op = CollectiveOp::kAllReduce;
  std::optional<int> root;  // of a reduce
  bool operator==(const Route&) const = default;
};

// One tensor of a message; kGradient stands for all gradient tensors of the layer.
struct Member {
  TensorKind kind = TensorKind::kGradient;
  int layer = 0;
  bool operator==(const Member&) const = default;
};
inline bool is_factor(const Member& member) {
  return member.kind == TensorKind::kFactorA || member.kind == TensorKind::kFactorG;
}

// Behind its members a message carries the number of examples of each factor, which `elements`
// leaves out.
struct Message {
  std::vector<Member> members;  // in the order of the buffer
  std::int64_t elements = 0;
  Route route;
  bool operator==(const Message&) const = default;
};

// Who inverts one factor. Without an owner every rank does (the paper's NCT).
struct FactorPlacement {
  int layer = 0;
  FactorSide side = FactorSide::kA;
  std::int64_t dim = 0;  // of its blocks; of all of it where it has one
  std::optional<int> owner;
  // The layer's gradient is reduced to the owner of both factors, which sends V instead of the two
  // inverses.
  bool sends_gradient = false;
  std::int64_t blocks = 1;  // of all groups

  std::int64_t packed() const { return blocks * packed_elements(dim); }
  // Of its inverse or eigenvectors, as they travel.
  std::int64_t result(Solver solver) const { return blocks * result_elements(dim, solver); }
  bool operator==(const FactorPlacement&) const = default;
};

// Steps of an interval cycle: everything, factors without new inverses, gradients only.
enum class StepKind { kFull, kFactors, kGradients };

// What both executors follow. All ranks hold the same Plan; digest() proves it.
struct Plan {
  std::string algorithm;
  std::string model;
  int world = 1;
  StepKind step = StepKind::kFull;
  PlanOptions options;
  RefreshIntervals intervals;     // of the cycle that the step belongs to; 1 and 1 without factors
  std::vector<Message> messages;  // in launch order
  std::vector<FactorPlacement> placements;  // in the order of inversion and exchange
  // What a simulation of this plan gave, if there was one.
  std::optional<Seconds> predicted_iteration;
  CategoryTimes predicted_breakdown;

  // Sixteen hexadecimal digits over everything but what is predicted.
  std::string digest() const;
};

// The same work with two ranks in each other's place.
Plan with_ranks_swapped(Plan plan, int one, int other);

// Whether messages of this step carry factors.
bool sends_factors(const Plan& plan);

// A message as logs, traces and errors name it: all_reduce factor_a 3..7.
std::string describe(const Message& message);

// What `member` adds to a message.
struct MemberSize {
  std::int64_t elements = 0;
  std::int64_t tensors = 0;
};
MemberSize member_size(const LayerSpec& layer, TensorKind kind);

// What the owner of a layer sends with V: ⟨V, ∇W⟩, which clipping needs on every rank, as the two
// halves of a double.
constexpr std::int64_t kInnerElements = 2;

// The broadcasts of what owners made, in order: one inverse each, or the gradients of layers that
// are neighbours in `placements` and have one owner (for each layer V and the averaged gradients of
// the modules without factors behind it, then ⟨V, ∇W⟩ of each layer). Where gradients are
// all-reduced, inverses go to the gradient workers of the layer; behind all inverses, V of each
// layer goes from these to their rows of the grid, or V of all layers are gathered at once.
struct ResultBroadcast {
  std::size_t first = 0;  // index into Plan::placements
  std::size_t last = 0;   // inclusive; the broadcast leaves when this factor is done
  int root = 0;
  bool gradients = false;
  std::int64_t elements = 0;
  std::int64_t tensors = 1;
  int ranks = 1;   // that take part in it
  int copies = 1;  // at the same time, each in other ranks

  // Over all ranks, by how many of them receive it.
  std::int64_t received_elements() const { return elements * copies * (ranks - 1); }
};
std::vector<ResultBroadcast> result_broadcasts(const Plan& plan, const ModelSpec& model);

// Whether the owner of each of the model's layers sends V.
std::vector<bool> layers_sending_gradient(const Plan& plan, std::size_t layers);

// The same plan where gradients are averaged by someone else: its messages carry the rest.
Plan without_gradients(Plan plan, const ModelSpec& model);

// Throws a ConfigError when the plan is not one for this model: other layers, dimensions, sizes,
// a tensor that is missing or sent twice, an owner outside the world.
void validate_against(const Plan& plan, const ModelSpec& model, const std::string& where);

// Reads a plan file; anything unexpected is a ConfigError with the field's path.
Plan read_plan(const std::filesystem::path& path);

const std::vector<std::string>& step_names();
const std::vector<std::string>& tensor_kind_names();

}  // namespace spdkfac
