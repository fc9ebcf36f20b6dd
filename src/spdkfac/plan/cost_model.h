// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "spdkfac/base/factor_side.h"
#include "spdkfac/base/units.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/plan/plan_options.h"

namespace spdkfac {

// Points (x, seconds) with increasing x and non-decreasing seconds. Between points linear; before
// the first point constant; behind the last along the last segment.
class CostTable {
 public:
  explicit CostTable(std::vector<std::pair<double, Seconds>> points);
  Seconds operator()(double x) const;
  const std::vector<std::pair<double, Seconds>>& points() const { return points_; }

 private:
  std::vector<std::pair<double, Seconds>> points_;
};

// Time of one collective on the whole group: α + per_tensor·tensors + β·elements, or a table.
class CollectiveCost {
 public:
  CollectiveCost() = default;  // free
  CollectiveCost(Seconds alpha, Seconds beta, Seconds per_tensor = Seconds(0));
  explicit CollectiveCost(CostTable table, Seconds per_tensor = Seconds(0));

  Seconds time(std::int64_t elements, std::int64_t tensors = 1) const {
    const double m = static_cast<double>(elements);
    const Seconds transfer = table_ ? (*table_)(m) : alpha_ + beta_ * m;
    return transfer + per_tensor_ * static_cast<double>(tensors);
  }
  // The start-up time α that a message saves by joining another; a table's first entry.
  Seconds startup() const { return table_ ? table_->points().front().second : alpha_; }
  // Start-up and transfer scaled apart, as on another number of ranks or another network.
  CollectiveCost scaled(double alpha_factor, double beta_factor,
                        double per_tensor_factor = 1) const;

  Seconds alpha() const { return alpha_; }
  Seconds beta() const { return beta_; }
  Seconds per_tensor() const { return per_tensor_; }
  const std::optional<CostTable>& table() const { return table_; }

 private:
  Seconds alpha_;
  Seconds beta_;
  Seconds per_tensor_;
  std::optional<CostTable> table_;
};

struct ExponentialInverse {  // the paper's form, α·e^{βd}
  double alpha = 0;
  double beta = 0;
};
struct PowerInverse {
  double coefficient = 0;
  double exponent = 0;
};
struct CubicInverse {
  double c0 = 0, c1 = 0, c2 = 0, c3 = 0;
};
using InverseCost = std::variant<ExponentialInverse, PowerInverse, CubicInverse, CostTable>;

Seconds inverse_time(const InverseCost& cost, std::int64_t dim);

struct ComputeRates {
  FlopsPerSecond forward;  // the backward pass costs two forwards
  FlopsPerSecond factor;
  FlopsPerSecond precondition;
};

// Measured seconds of a whole model at one batch size, spread over its layers by flops.
struct MeasuredTotals {
  std::int64_t batch = 1;
  Seconds forward_backward;
  Seconds factors;  // A, G and preconditioning
};

struct Overheads {
  Seconds host_per_tensor;
  Seconds pack_per_element;
  Seconds unpack_per_element;
  double compute_rate_under_communication = 1;
  double communication_rate_under_computation = 1;
  // Factors are unpacked while later messages still travel; otherwise when all have arrived.
  bool unpack_on_arrival = false;
};

enum class AlphaScaling { kLog, kLinear, kConstant };

// When one layer's factors are computed: between its passes (F_l, A_l … G_l, B_l), as the runtime
// does it, or around them (A_l, F_l … B_l, G_l), as the paper's cluster file was fitted.
enum class TaskOrder { kFactorsBetweenPasses, kFactorsAroundPasses };

// What a cluster costs: the cluster file of docs/formats.md.
struct CostModel {
  std::string name;
  int world = 1;
  CollectiveCost all_reduce;
  CollectiveCost reduce;
  CollectiveCost broadcast;
  InverseCost inverse = CubicInverse{};
  std::optional<ComputeRates> compute;
  std::map<std::string, MeasuredTotals> models;
  Overheads overheads;
  TaskOrder task_order = TaskOrder::kFactorsBetweenPasses;
  AlphaScaling alpha_scaling = AlphaScaling::kLog;
  std::optional<std::int64_t> nct_below;
  std::string source;
  std::map<std::string, std::string> provenance;

  Seconds inverse_time(std::int64_t dim) const { return spdkfac::inverse_time(inverse, dim); }

  // The same cluster with another number of ranks: α as alpha_scaling says, β ∝ (P−1)/P.
  // Communication is free on one rank. A cluster file for one rank cannot be scaled up.
  CostModel for_world(int new_world) const;
  // A broadcast within as many of the ranks, by the same rule.
  CollectiveCost broadcast_within(int ranks) const;
};

// Reads a cluster file; anything unexpected is a ConfigError with the field's path.
CostModel read_cluster(const std::filesystem::path& path);

// What a refresh makes of a layer's factor. As measured with the layer; or else an inverse by the
// cluster's cost of its dimension, and what other solvers and methods make as many times as long.
Seconds inverse_time(const LayerSpec& layer, FactorSide side, const CostModel& costs,
                     const PlanOptions& options = {});

// Seconds of each layer's parts for the whole batch on one rank.
struct LayerCosts {
  Seconds forward;
  Seconds backward;
  Seconds factor_a;
  Seconds factor_g;
  Seconds precondition;
  Seconds inverse_a;
  Seconds inverse_g;

  Seconds inverse(FactorSide side) const { return side == FactorSide::kA ? inverse_a : inverse_g; }
};

// Precedence: the layer's measured times, the cluster's totals for this model and batch, its flop
// rates. A layer that none of them covers is a ConfigError. Of other methods than K-FAC factors are
// statistics of the averaged gradient; what is done with matrices runs as fast as preconditioning.
std::vector<LayerCosts> layer_costs(const ModelSpec& model, const CostModel& costs,
                                    const PlanOptions& options = {});

}  // namespace spdkfac
