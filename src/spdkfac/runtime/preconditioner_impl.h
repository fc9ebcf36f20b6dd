// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "spdkfac/base/log.h"
#include "spdkfac/runtime/capture.h"
#include "spdkfac/runtime/clipping.h"
#include "spdkfac/runtime/damping_trial.h"
#include "spdkfac/runtime/factor_bank.h"
#include "spdkfac/runtime/gradient_hooks.h"
#include "spdkfac/runtime/incidents.h"
#include "spdkfac/runtime/layer_profile.h"
#include "spdkfac/runtime/preconditioner.h"
#include "spdkfac/runtime/profile_schedule.h"
#include "spdkfac/runtime/refreshes.h"
#include "spdkfac/runtime/replayed_steps.h"
#include "spdkfac/runtime/run_plans.h"
#include "spdkfac/runtime/step_executor.h"
#include "spdkfac/runtime/step_recorder.h"

namespace spdkfac {

// Owns the parts of a Preconditioner and runs its steps: capture, executor, plans, counters. Not
// for users; step_control and step_meter have what else they need.
class Preconditioner::Impl {
 public:
  Impl(std::vector<TrackedLayer> layers, std::vector<at::Tensor> parameters,
       const Distribution& distribution, const KfacOptions& options,
       std::shared_ptr<Logger> logger);

  void step(double learning_rate, const Momentum& momentum);
  void synchronize();
  void change(const KfacChanges& changes);
  bool judges_damping() const { return trial_.has_value(); }
  void judge_damping(double loss_before, double loss_after);
  void set_loss_scale(std::function<at::Tensor()> scale) { loss_scale_ = std::move(scale); }
  void set_rate(at::Tensor rate) { rate_ = std::move(rate); }
  std::vector<std::size_t> unseen_layers() const;
  bool wants_calls() const { return executor_.work().factors || !executor_.planned() || timing_; }
  void discard();
  void gradients_zeroed();
  KfacStateStream state();
  void load(const KfacState& state);
  void load_failed();
  KfacCounters counters();
  KfacMemory memory() const;
  const runtime::RunPlans& plans() const { return plans_; }
  int ranks() const { return distribution_.communicator->size(); }

  // For steps that are recorded as graphs: what is due in the coming one, as a number, and that
  // such a step was replayed instead of calling step().
  int variant();
  void count_replayed_step(int variant);

  // For measurements.
  void time_layers(bool on);
  std::vector<runtime::RankProfile> profiles();  // of all ranks, in the timed steps
  void start_trace() {
    if (options.trace) recorder_.start(device());
  }
  const std::shared_ptr<const runtime::StepEvents>& last_events() const { return last_events_; }

  KfacOptions options;  // as they are now; change() and judge_damping() write them
  const std::vector<TrackedLayer> layers;

 private:
  // Receives the capture; apart from Impl, because gradient hooks may outlive both.
  class Sink;

  at::Device device() const { return layers.front().weight.device(); }
  static KfacOptions validated(const KfacOptions& options, int world);
  void adopt(const KfacOptions& changed);
  void begin_trial(const std::vector<runtime::ClippedLayer>& layers_of_step,
                   const runtime::Clipped& clipped, const std::vector<ParameterPart>& others);
  void require_no_trial() const;
  runtime::StepWork work() const { return refreshes_.work(steps_); }
  std::vector<bool> stale() const;
  void begin_step();
  void make_first_plan();
  void make_plan_again();
  void adopt_plans();
  // A ConfigError on all ranks if the memory of one will not do.
  void require_memory_at_start();
  void require_memory(const std::map<StepKind, Plan>& plans);
  void keep_events();
  void clip(const std::vector<at::Tensor>& inner, double learning_rate, const Momentum& momentum);
  at::Tensor unscaled(const at::Tensor& gradient) const;
  void before_call();
  void on_gradient(std::size_t layer, const kfac::LayerUse& use, const at::Tensor& gradient,
                   std::int64_t pass);
  bool gradients_are_gone() const;
  void forget_passes();
  void hook_gradients(const std::vector<std::vector<ParameterPart>>& by_layer);

  const KfacOptions first_options_;
  const Distribution distribution_;
  const bool second_order_;
  const std::vector<at::Tensor> parameters_;  // those that are trained
  const std::vector<at::Tensor> others_;      // of them, those outside the layers
  std::function<at::Tensor()> loss_scale_;    // null: 1
  at::Tensor rate_;                           // undefined: as step() is told
  std::int64_t steps_ = 0;
  bool called_ = false;  // a layer, since the last step
  runtime::ReplayedSteps replays_;
  runtime::ProfileSchedule profile_;

  runtime::Incidents incidents_;
  runtime::StepRecorder recorder_;
  runtime::FactorBank bank_;
  runtime::StepExecutor executor_;
  runtime::Refreshes refreshes_;
  std::optional<runtime::DampingTrial> trial_;  // of the last step, until it is judged
  runtime::CallLog calls_;                      // of the first step
  // Whether a gradient came to each layer in this step, and whether the caller has set them all to
  // zero since then.
  std::vector<bool> came_;
  bool zeroed_ = false;
  runtime::RunPlans plans_;

  // Layers are timed in the coming step. Messages wait meanwhile: what they take from computation
  // is in the cost model.
  bool timing_ = false;
  runtime::RecordedEvents timed_;  // of the steps in which they were
  std::shared_ptr<const runtime::StepEvents> last_events_;

  std::unique_ptr<runtime::GradientHooks> gradient_hooks_;
  std::shared_ptr<Sink> sink_;
  std::optional<runtime::Capture> capture_;
};

}  // namespace spdkfac
