// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "spdkfac/base/log.h"
#include "spdkfac/runtime/distribution.h"
#include "spdkfac/runtime/kfac_options.h"
#include "spdkfac/runtime/model_spec.h"

namespace spdkfac::runtime {

// The plan of one rank: it sends nothing, and every factor of a layer that was called is without an
// owner.
Plan plan_without_messages(const std::string& model, const std::vector<TrackedLayer>& layers,
                           const CallLog& calls, bool second_order,
                           const RefreshIntervals& intervals, StepKind step,
                           const FactorLimit& limit = {});

// The plans that a run follows, one for each kind of step that its intervals bring. Made when the
// first step has shown the layers, and made again from measured times.
class RunPlans {
 public:
  // The distribution has a communicator. Where several ranks are to measure, they do so here.
  RunPlans(const Distribution& distribution, const KfacOptions& options, c10::Device device,
           std::shared_ptr<Logger> logger);

  // `parameters`: all that are trained. Several ranks join what they have seen: a layer that some
  // of them did not call is in the plan, too. A plan that does not fit is a ConfigError. A call
  // that throws may be repeated. Returns the calls that the plan is for, the same on all ranks.
  CallLog make_first(const std::vector<TrackedLayer>& layers, const CallLog& calls,
                     const std::vector<at::Tensor>& parameters);
  void make_again(const std::vector<LayerTimes>& times);
  // The intervals have changed. Plans that were made before, for these layers and calls, are made
  // again.
  void set_intervals(const KfacOptions& options);
  void make_for_intervals(const std::vector<TrackedLayer>& layers, const CallLog& calls,
                          const std::vector<at::Tensor>& parameters);

  // What ranks send, without gradients that someone else averages.
  std::map<StepKind, Plan> followed() const;
  std::optional<Plan> plan(StepKind kind) const;
  // The layers that the plans are for; one rank has no table of them.
  const ModelSpec& model() const { return model_; }

 private:
  void make();
  void check(const Plan& plan) const;

  const Distribution& distribution_;
  const c10::Device device_;
  const bool second_order_;
  std::vector<StepKind> kinds_;
  RefreshIntervals intervals_;
  FactorLimit limit_;
  Solver solver_;
  std::shared_ptr<Logger> logger_;
  Planner planner_;  // of several ranks
  ModelSpec model_;
  std::map<StepKind, Plan> plans_;
};

}  // namespace spdkfac::runtime
