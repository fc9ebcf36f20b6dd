// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "spdkfac/base/solver.h"
#include "spdkfac/base/units.h"

namespace spdkfac {

// When factors are computed and may leave. kNone: first-order training, no factors at all.
enum class FactorSchedule { kNone, kBulk, kNaive, kPipelined };
enum class Fusion { kNone, kBucket, kThreshold, kGreedy, kOptimal };
enum class PlacementKind { kReplicated, kSequential, kBalanced, kLpt, kBlocks };
enum class BalanceBy { kDimension, kSquare, kTime };
// kLocal: the owner makes the factors of what it has itself, and no factor travels. With K-FAC that
// is its own mini-batch, with other methods the averaged gradient.
enum class FactorReduce { kAllReduce, kOwner, kLocal };
// What an owner sends: both inverses, the preconditioned gradient, or per layer the cheaper one.
// kGather: gradients are all-reduced, and what owners made of them is gathered in one message.
enum class Exchange { kInverse, kGradient, kCheapest, kGather };
// What makes a layer's matrices and what is done with them (plan/method_costs.h).
enum class Method { kKfac, kShampoo, kSoap, kMuon };

// Every algorithm, variant and ablation is a value of this struct.
struct PlanOptions {
  std::string algorithm = "spd-kfac";
  FactorSchedule factor_schedule = FactorSchedule::kPipelined;
  Fusion fusion = Fusion::kGreedy;
  Bytes threshold_bytes = kMebibyte * 64;
  PlacementKind placement = PlacementKind::kBalanced;
  BalanceBy balance_by = BalanceBy::kDimension;
  FactorReduce factor_reduce = FactorReduce::kAllReduce;
  Exchange exchange = Exchange::kInverse;
  Method method = Method::kKfac;
  Solver solver = Solver::kInverse;  // of kKfac; in training that of KfacOptions
  // KAISA: gradients are all-reduced, this share of the ranks receives a layer's inverses and
  // preconditions (0: the owner alone), and each of them sends V to some of the others.
  std::optional<double> gradient_workers = std::nullopt;
  // Overrides the CT/NCT rule: factors (or, when V is exchanged, layers) of a smaller dimension
  // are inverted on every rank.
  std::optional<std::int64_t> nct_below = std::nullopt;
  // Only of kBlocks: how many ranks own a block of consecutive layers (default: all).
  std::optional<int> owners = std::nullopt;

  bool second_order() const { return factor_schedule != FactorSchedule::kNone; }
  bool operator==(const PlanOptions&) const = default;
};

// Who preconditions a layer, as a grid of the ranks in rows of `columns`: the gradient workers of a
// layer are the column of its owner, and each sends V to its row.
struct WorkerGrid {
  int workers = 1;  // of a layer
  int columns = 1;
  int column_of(int rank) const { return rank % columns; }
};
// `gradient_workers` is a limit: the largest number of workers that divides the ranks.
WorkerGrid worker_grid(const PlanOptions& options, int world);

// One named algorithm: a preset of PlanOptions.
struct AlgorithmInfo {
  std::string name;        // on the command line and in files
  std::string paper_name;  // in the paper; empty for what goes beyond it
  std::string summary;
  PlanOptions options;
};

// `auto` is not in this list: it chooses among these and the owner schemes (sim/auto_planner.h).
constexpr const char* kAutoAlgorithm = "auto";
const std::vector<AlgorithmInfo>& named_algorithms();
// What others compute or how they share it out: planned and simulated, but not trained with.
const std::vector<AlgorithmInfo>& other_methods();

// The preset of a name, `auto` included; an unknown name is a ConfigError that lists the known.
PlanOptions preset(const std::string& algorithm);

// What makes no sense about a combination, naming both fields, and what to do; nothing otherwise.
std::optional<std::string> conflict_in(const PlanOptions& options);
// Throws a ConfigError that says so.
void validate(const PlanOptions& options);
// Throws a ConfigError for options that plans and forecasts know, but no training.
void require_trainable(const PlanOptions& options);

// The words of each option on the command line and in files, in the order of the enumerators.
const std::vector<std::string>& factor_schedule_names();
const std::vector<std::string>& fusion_names();
const std::vector<std::string>& placement_names();
const std::vector<std::string>& balance_by_names();
const std::vector<std::string>& factor_reduce_names();
const std::vector<std::string>& exchange_names();
const std::vector<std::string>& method_names();

template <class Enum>
const std::string& name_of(const std::vector<std::string>& names, Enum value) {
  return names.at(static_cast<std::size_t>(value));
}

}  // namespace spdkfac
