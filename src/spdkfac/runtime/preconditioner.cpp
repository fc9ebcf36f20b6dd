// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/preconditioner.h"

#include <limits>
#include <map>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/ranges.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/error.h"
#include "spdkfac/base/log.h"
#include "spdkfac/comm/agreement.h"
#include "spdkfac/kfac/precondition.h"
#include "spdkfac/runtime/capture.h"
#include "spdkfac/runtime/factor_bank.h"
#include "spdkfac/runtime/gradient_hooks.h"
#include "spdkfac/runtime/kfac_state.h"
#include "spdkfac/runtime/layer_profile.h"
#include "spdkfac/runtime/model_spec.h"
#include "spdkfac/runtime/step_schedule.h"

namespace spdkfac {
namespace {

// Gradients that exist.
std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  return gradients;
}

std::vector<at::Tensor> trainable(std::vector<at::Tensor> parameters) {
  std::erase_if(parameters, [](const at::Tensor& one) { return !one.requires_grad(); });
  return parameters;
}

void set_times(ModelSpec& model, const std::vector<LayerTimes>& times) {
  for (std::size_t layer = 0; layer < times.size(); ++layer) {
    model.layers[layer].times = times[layer];
  }
}

std::string place_of(const Distribution& distribution) {
  if (!distribution.communicator || distribution.communicator->size() == 1) return "";
  return fmt::format(" on rank {}", distribution.communicator->rank());
}

}  // namespace

class Preconditioner::Impl {
 public:
  Impl(std::vector<TrackedLayer> layers, std::vector<at::Tensor> parameters,
       const Distribution& distribution, const KfacOptions& options,
       std::shared_ptr<spdlog::logger> logger);

  void step(double learning_rate);
  void synchronize();
  StepKind kind() const;
  int ranks() const { return alone() ? 1 : distribution_.communicator->size(); }
  void count_replayed_step();
  void set_loss_scale(std::function<at::Tensor()> scale) { loss_scale_ = std::move(scale); }
  void discard();
  void save(torch::serialize::OutputArchive& archive);
  void load(torch::serialize::InputArchive& archive);
  KfacCounters counters();
  KfacMemory memory() const;
  std::optional<Plan> plan(StepKind kind) const;
  const ModelSpec& model() const { return model_; }
  void time_layers(bool on);
  TimedSteps timed_steps();
  std::vector<RankProfile> profiles();  // of all ranks, in the timed steps

  const KfacOptions options;
  const std::vector<TrackedLayer> layers;
  StepTrace trace;

 private:
  // Receives the capture; apart from Impl, because gradient hooks may outlive both.
  class Sink;

  at::Device device() const { return layers.front().weight.device(); }
  bool alone() const { return !schedule_; }
  bool factors_due() const {
    return distribution_.second_order && steps_ % options.factor_interval == 0;
  }
  bool inverses_due() const { return steps_ % options.inverse_interval == 0; }
  bool unplanned() const { return schedule_ && !schedule_->planned(); }
  KfacCounters updates_since(const KfacCounters& before);
  at::Tensor unscaled(const at::Tensor& gradient) const;
  std::vector<at::Tensor> step_alone();
  void make_first_plan();
  void make_plan_again();
  void adopt_plan();
  void set_timing(bool on);
  void scale_gradients(const at::Tensor& inner, double learning_rate);

  Distribution distribution_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> others_;
  std::shared_ptr<spdlog::logger> logger_;
  std::function<at::Tensor()> loss_scale_;  // null: 1
  std::int64_t steps_ = 0;
  std::map<StepKind, KfacCounters> counted_;  // what a step of a kind adds, without its events
  std::int64_t steps_seen_ = 0;               // by this object, which may have been loaded
  FactorBank bank_;
  std::unique_ptr<StepSchedule> schedule_;  // null: this process alone
  CallLog calls_;                           // of the first step
  ModelSpec model_;
  std::map<StepKind, Plan> plans_;
  std::optional<LayerProfile> profile_;
  bool timing_ = false;  // the coming step is added to the profile
  std::unique_ptr<GradientHooks> gradient_hooks_;
  std::shared_ptr<Sink> sink_;
  std::optional<Capture> capture_;
};

class Preconditioner::Impl::Sink : public CaptureSink, public std::enable_shared_from_this<Sink> {
 public:
  explicit Sink(Impl& owner) : owner_(&owner) {}

  bool wants(std::size_t) override {
    return owner_->factors_due() || owner_->unplanned() || owner_->timing_;
  }

  std::function<void(const at::Tensor&)> on_call(std::size_t layer, const LayerUse& use,
                                                 const at::Tensor& input,
                                                 const at::Tensor& output) override {
    std::int64_t pass = 0;
    visit(layer, FactorSide::kA, input.device(),
          [&](bool hold) { pass = owner_->bank_.on_call(layer, use, input, output, hold); });
    if (owner_->unplanned()) owner_->calls_.add(layer, use);
    return [weak = weak_from_this(), layer, use, pass](const at::Tensor& gradient) {
      const std::shared_ptr<Sink> self = weak.lock();
      if (!self) return;
      self->visit(layer, FactorSide::kG, gradient.device(), [&](bool hold) {
        self->owner_->bank_.on_gradient(layer, use, self->owner_->unscaled(gradient), pass, hold);
      });
    };
  }

 private:
  // Takes in a call or a gradient, where factors are due, and tells those who wait for it.
  template <class Take>
  void visit(std::size_t layer, FactorSide side, at::Device device, const Take& take) {
    LayerProfile* profile = owner_->timing_ ? &*owner_->profile_ : nullptr;
    if (profile) profile->visit_begins(layer, side, device);
    StepSchedule* schedule = owner_->schedule_.get();
    if (owner_->factors_due()) take(schedule && schedule->holds());
    if (schedule) schedule->computed({layer, side});
    if (profile) profile->visit_ends(device);
  }

  Impl* owner_;  // holds the only lasting reference to this object
};

Preconditioner::Impl::Impl(std::vector<TrackedLayer> tracked, std::vector<at::Tensor> parameters,
                           const Distribution& distribution, const KfacOptions& given,
                           std::shared_ptr<spdlog::logger> logger)
    : options(given),
      layers(std::move(tracked)),
      trace(given.trace),
      distribution_(distribution),
      parameters_(trainable(std::move(parameters))),
      others_(other_parameters(parameters_, layers)),
      logger_(std::move(logger)),
      bank_(layers, options, logger_, trace, place_of(distribution)),
      calls_(layers.size()) {
  validate(options);
  if (layers.empty()) {
    throw ConfigError("kfac: the model has no Conv2d and no Linear layer; K-FAC covers these");
  }
  if (distribution_.communicator && distribution_.communicator->size() > 1) {
    if (options.inverse_interval % options.factor_interval != 0) {
      throw ConfigError(fmt::format(
          "kfac: inverse_interval={} is no multiple of factor_interval={}; with several ranks new "
          "inverses come with new factors",
          options.inverse_interval, options.factor_interval));
    }
    if (!distribution_.planner)
      distribution_.planner = common_planner(distribution_.communicator->size());
    const auto by_layer = parameters_by_layer(layers, parameters_);
    std::vector<std::pair<std::size_t, std::size_t>> places;
    for (std::size_t layer = 0; layer < by_layer.size(); ++layer) {
      for (std::size_t i = 0; i < by_layer[layer].size(); ++i) places.emplace_back(layer, i);
    }
    std::vector<at::Tensor> in_order;
    for (const auto& [layer, i] : places) in_order.push_back(by_layer[layer][i]);
    schedule_ = std::make_unique<StepSchedule>(*distribution_.communicator, bank_, trace, by_layer);
    if (distribution_.send_gradients) {
      gradient_hooks_ =
          std::make_unique<GradientHooks>(in_order, [this, places](std::size_t parameter) {
            schedule_->gradient_finished(places[parameter].first, places[parameter].second);
          });
    }
  }
  sink_ = std::make_shared<Sink>(*this);
  capture_.emplace(layers, sink_);
}

StepKind Preconditioner::Impl::kind() const {
  if (!distribution_.second_order || inverses_due()) return StepKind::kFull;
  return factors_due() ? StepKind::kFactors : StepKind::kGradients;
}

void Preconditioner::Impl::step(double learning_rate) {
  const c10::NoGradGuard no_grad;
  trace.passes_end(device());
  if (unplanned()) make_first_plan();
  if (timing_) profile_->step_ends(device());
  const KfacCounters before = bank_.counters();
  const std::vector<at::Tensor> all = alone() ? step_alone() : schedule_->exchange();
  bank_.clear();
  std::vector<at::Tensor> inner;
  for (const at::Tensor& one : all) {
    if (one.defined()) inner.push_back(one);
  }
  if (!inner.empty()) {
    const StepTrace::Span span(trace, Category::kPrecondition, "clip", "", device());
    std::optional<TimeMark> begin;
    if (timing_) begin = TimeMark::now(device());
    scale_gradients(at::stack(inner).to(at::kDouble).sum(), learning_rate);
    if (begin) profile_->clipped(std::move(*begin), TimeMark::now(device()));
  }
  counted_[kind()] = updates_since(before);
  bank_.events().end_step();
  ++steps_;
  bank_.counters().steps = steps_;
  if (schedule_) {
    schedule_->end();
    if (steps_seen_ == distribution_.profile_steps && steps_seen_ > 0) make_plan_again();
    // The first step is for warming up.
    if (steps_seen_++ == 0 && distribution_.profile_steps > 0) set_timing(true);
    schedule_->begin(kind());
  }
  trace.next_step(device());
}

// What the host counts; events are counted when they arrive.
KfacCounters Preconditioner::Impl::updates_since(const KfacCounters& before) {
  const KfacCounters& now = bank_.counters();
  KfacCounters made;
  made.factor_updates = now.factor_updates - before.factor_updates;
  made.inverse_updates = now.inverse_updates - before.inverse_updates;
  made.layers_without_factors = now.layers_without_factors - before.layers_without_factors;
  return made;
}

void Preconditioner::Impl::count_replayed_step() {
  SPDKFAC_CHECK(alone(), "a replayed step of several ranks");
  KfacCounters& counters = bank_.counters();
  const KfacCounters& made = counted_.at(kind());
  counters.factor_updates += made.factor_updates;
  counters.inverse_updates += made.inverse_updates;
  counters.layers_without_factors += made.layers_without_factors;
  counters.steps = ++steps_;
}

// In the type of the factors: half precision could not hold the quotient.
at::Tensor Preconditioner::Impl::unscaled(const at::Tensor& gradient) const {
  if (!loss_scale_) return gradient;
  const c10::NoGradGuard no_grad;
  const at::Tensor scale = loss_scale_().to(gradient.device());
  const auto wide = gradient.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return gradient.to(wide).mul(scale.to(at::kDouble).reciprocal().to(wide));
}

void Preconditioner::Impl::synchronize() {
  if (alone() || !distribution_.send_gradients) return;
  const c10::NoGradGuard no_grad;
  if (unplanned()) make_first_plan();
  schedule_->synchronize();
}

// Factors, inverses and gradients of one process.
std::vector<at::Tensor> Preconditioner::Impl::step_alone() {
  std::vector<FactorId> fresh;
  for (std::size_t layer = 0; layer < bank_.size(); ++layer) {
    LayerState& state = bank_.state(layer);
    if (factors_due() && state.captured()) {
      for (const FactorSide side : {FactorSide::kA, FactorSide::kG}) {
        state.keep(side, true, true);
        fresh.push_back({layer, side});
      }
    } else if (factors_due() && state.layer().weight.grad().defined()) {
      bank_.note_missing(layer);
    }
  }
  bank_.average(fresh);
  std::vector<std::size_t> stale;
  for (std::size_t layer = 0; layer < bank_.size(); ++layer) {
    if (bank_.state(layer).stale) stale.push_back(layer);
  }
  if (inverses_due()) bank_.invert_all(std::move(stale));
  std::vector<std::size_t> covered;
  for (std::size_t layer = 0; layer < bank_.size(); ++layer) {
    const LayerState& state = bank_.state(layer);
    if (state.has_inverses() && state.layer().weight.grad().defined()) covered.push_back(layer);
  }
  return bank_.precondition_all(covered);
}

// The order of layers and their work are known after the first forward pass.
void Preconditioner::Impl::make_first_plan() {
  if (calls_.order().empty()) {
    throw ConfigError(
        "kfac: step() before any forward pass with gradients was seen; run it on the thread that "
        "made the Preconditioner, in training mode");
  }
  const auto by_layer = parameters_by_layer(layers, parameters_);
  model_.name = distribution_.model_name;
  model_.batch = calls_.uses(calls_.order().front()).front().examples;
  model_.layers = specs_of_calls(layers, calls_, by_layer, "kfac");
  for (const LayerSpec& layer : model_.layers) model_.parameters += layer.gradient_elements();
  std::int64_t all = 0;
  for (const at::Tensor& parameter : parameters_) all += parameter.numel();
  if (model_.parameters != all) {
    throw ConfigError(fmt::format(
        "kfac: {} of {} Conv2d and Linear layers were called in the first step; with several ranks "
        "all must be, for their gradients travel",
        calls_.order().size(), layers.size()));
  }
  require_same(*distribution_.communicator, "the model and the batch of a rank",
               to_json(model_).dump());
  adopt_plan();
}

void Preconditioner::Impl::make_plan_again() {
  set_timing(false);
  set_times(model_, joined_times(profiles()));
  profile_.reset();
  adopt_plan();
}

// Messages wait meanwhile: what they take from computation is in the cost model.
void Preconditioner::Impl::set_timing(bool on) {
  timing_ = on;
  if (on && !profile_) profile_.emplace(layers.size());
  bank_.set_profile(on ? &*profile_ : nullptr);
  schedule_->set_quiet(on);
}

void Preconditioner::Impl::time_layers(bool on) {
  if (alone() || unplanned()) {
    throw ConfigError(
        "kfac: layers are timed by several ranks that have a plan; call time_layers() after their "
        "first step");
  }
  set_timing(on);
  schedule_->begin(kind());
}

std::vector<RankProfile> Preconditioner::Impl::profiles() {
  return profiles_of_ranks(profile_->result(model_.layers, calls_.order()),
                           *distribution_.communicator, device());
}

TimedSteps Preconditioner::Impl::timed_steps() {
  if (!profile_ || profile_->steps() == 0) {
    throw ConfigError("kfac: no step in which layers were timed; call time_layers() before one");
  }
  const std::vector<RankProfile> ranks = profiles();
  TimedSteps timed{.model = model_, .slowness = slowness_of_steps(ranks)};
  set_times(timed.model, mean_times(ranks));
  return timed;
}

void Preconditioner::Impl::adopt_plan() {
  std::vector<StepKind> kinds = {StepKind::kFull};
  if (distribution_.second_order && options.factor_interval < options.inverse_interval) {
    kinds.push_back(StepKind::kFactors);
  }
  if (distribution_.second_order && options.factor_interval > 1) {
    kinds.push_back(StepKind::kGradients);
  }
  plans_.clear();
  for (const StepKind kind : kinds) {
    Plan plan = distribution_.planner(model_, options.intervals(), kind);
    if (plan.world != distribution_.communicator->size()) {
      throw ConfigError(
          fmt::format("kfac: the plan is for {} ranks, the communicator has {}; make a plan for "
                      "this number of ranks",
                      plan.world, distribution_.communicator->size()));
    }
    if (plan.options.second_order() != distribution_.second_order) {
      throw ConfigError(fmt::format("kfac: the plan's algorithm {} {} factors, this run {}",
                                    plan.algorithm, plan.options.second_order() ? "has" : "has no",
                                    distribution_.second_order ? "needs them" : "does not"));
    }
    validate_against(plan, model_, "kfac: plan");
    require_same(*distribution_.communicator, "the plan", plan.digest());
    plans_.emplace(kind, std::move(plan));
  }
  logger_->info("kfac: plan {} of {} for {} ranks, {} messages in a full step",
                plans_.at(StepKind::kFull).digest(), plans_.at(StepKind::kFull).algorithm,
                distribution_.communicator->size(), plans_.at(StepKind::kFull).messages.size());
  std::map<StepKind, Plan> followed = plans_;
  if (!distribution_.send_gradients) {
    for (auto& [kind, plan] : followed) plan = without_gradients(std::move(plan), model_);
  }
  schedule_->adopt(followed, model_, calls_.order(), kind());
}

std::optional<Plan> Preconditioner::Impl::plan(StepKind kind) const {
  const auto found = plans_.find(kind);
  return found == plans_.end() ? std::nullopt : std::optional(found->second);
}

void Preconditioner::Impl::discard() {
  const c10::NoGradGuard no_grad;
  if (schedule_) {
    if (unplanned()) calls_ = CallLog(layers.size());
    schedule_->discard();
    schedule_->begin(kind());
  }
  bank_.clear();
}

// Clips the preconditioned gradients. Where anything is not finite, the step must not change the
// parameters: all gradients are set to zero.
void Preconditioner::Impl::scale_gradients(const at::Tensor& inner, double learning_rate) {
  std::vector<at::Tensor> covered;
  for (std::size_t layer = 0; layer < bank_.size(); ++layer) {
    if (!bank_.state(layer).ready()) continue;
    for (const at::Tensor& own : own_parameters(layers[layer])) covered.push_back(own);
  }
  covered = gradients_of(covered);
  std::vector<at::Tensor> others = gradients_of(others_);
  at::Tensor bad = inner.isfinite().logical_not();
  if (!others.empty()) {
    const at::Tensor largest =
        at::stack(at::_foreach_norm(others, std::numeric_limits<double>::infinity()));
    bad = bad.logical_or(largest.isfinite().all().logical_not());
  }
  const at::Tensor scale = kl_clip_scale(inner, options.kl_clip, learning_rate);
  bank_.events().note(
      bad,
      [step = steps_](std::size_t) {
        return EventLog::Message{
            "gradient",
            fmt::format("kfac: a gradient has a NaN or an infinity at step {}; all gradients were "
                        "set to zero for this step; said once, see the counters",
                        step)};
      },
      [this](std::int64_t times) { bank_.counters().nonfinite_gradients += times; });
  scale_or_clear(covered, others, scale, bad);
}

KfacCounters Preconditioner::Impl::counters() {
  bank_.events().finish();
  return bank_.counters();
}

KfacMemory Preconditioner::Impl::memory() const {
  KfacMemory memory = bank_.memory();
  if (schedule_) memory.buffers += schedule_->buffer_bytes();
  return memory;
}

void Preconditioner::Impl::save(torch::serialize::OutputArchive& archive) {
  bank_.events().finish();
  if (schedule_) schedule_->gather_state();
  save_state(archive, bank_, options);
  if (schedule_) schedule_->keep_what_is_needed();
}

void Preconditioner::Impl::load(torch::serialize::InputArchive& archive) {
  load_state(archive, bank_, options);
  steps_ = bank_.counters().steps;
  if (schedule_) {
    schedule_->keep_what_is_needed();
    if (schedule_->planned()) schedule_->begin(kind());
  }
}

namespace {

std::shared_ptr<spdlog::logger> logger_or_default(std::shared_ptr<spdlog::logger> logger) {
  return logger ? std::move(logger) : make_logger({});
}

}  // namespace

Preconditioner::Preconditioner(torch::nn::Module& model, const KfacOptions& options,
                               std::shared_ptr<spdlog::logger> logger)
    : Preconditioner(model, options, Distribution{}, std::move(logger)) {}

Preconditioner::Preconditioner(torch::nn::Module& model, const KfacOptions& options,
                               const Distribution& distribution,
                               std::shared_ptr<spdlog::logger> logger) {
  std::vector<std::string> uncovered;
  std::vector<TrackedLayer> layers = tracked_layers(model, &uncovered);
  logger = logger_or_default(std::move(logger));
  if (!uncovered.empty()) {
    logger->info("kfac: {} modules keep their own gradient: {}", uncovered.size(),
                 fmt::join(uncovered, ", "));
  }
  impl_ = std::make_unique<Impl>(std::move(layers), model.parameters(), distribution, options,
                                 std::move(logger));
}

Preconditioner::Preconditioner(std::vector<TrackedLayer> layers, std::vector<at::Tensor> others,
                               const KfacOptions& options, std::shared_ptr<spdlog::logger> logger) {
  std::vector<at::Tensor> parameters;
  for (const TrackedLayer& layer : layers) {
    for (const at::Tensor& own : own_parameters(layer)) parameters.push_back(own);
  }
  parameters.insert(parameters.end(), others.begin(), others.end());
  impl_ = std::make_unique<Impl>(std::move(layers), std::move(parameters), Distribution{}, options,
                                 logger_or_default(std::move(logger)));
}

Preconditioner::Preconditioner(std::vector<TrackedLayer> layers, std::vector<at::Tensor> parameters,
                               const KfacOptions& options, const Distribution& distribution,
                               std::shared_ptr<spdlog::logger> logger)
    : impl_(std::make_unique<Impl>(std::move(layers), std::move(parameters), distribution, options,
                                   logger_or_default(std::move(logger)))) {}

Preconditioner::~Preconditioner() = default;

void Preconditioner::step(double learning_rate) {
  if (!(learning_rate >= 0)) {
    throw ConfigError(fmt::format("kfac: step({}); pass the optimizer's learning rate, at least 0",
                                  learning_rate));
  }
  impl_->step(learning_rate);
}

void Preconditioner::step() {
  if (!impl_->options.learning_rate && impl_->options.kl_clip > 0) {
    throw ConfigError(
        "kfac: kl_clip needs the learning rate; call step(learning_rate), or set "
        "options.learning_rate, or kl_clip=0");
  }
  impl_->step(impl_->options.learning_rate.value_or(0));
}

void Preconditioner::synchronize() { impl_->synchronize(); }

void Preconditioner::set_loss_scale(std::function<at::Tensor()> scale) {
  impl_->set_loss_scale(std::move(scale));
}

int Preconditioner::ranks() const { return impl_->ranks(); }

StepKind Preconditioner::coming_step() const { return impl_->kind(); }

void Preconditioner::count_replayed_step() { impl_->count_replayed_step(); }

void Preconditioner::discard() { impl_->discard(); }

KfacCounters Preconditioner::counters() { return impl_->counters(); }

KfacMemory Preconditioner::memory() const { return impl_->memory(); }

const std::vector<TrackedLayer>& Preconditioner::layers() const { return impl_->layers; }

const KfacOptions& Preconditioner::options() const { return impl_->options; }

std::optional<Plan> Preconditioner::plan(StepKind kind) const { return impl_->plan(kind); }

const ModelSpec& Preconditioner::model() const { return impl_->model(); }
void Preconditioner::time_layers(bool on) { impl_->time_layers(on); }
TimedSteps Preconditioner::timed_steps() { return impl_->timed_steps(); }

void Preconditioner::start_trace() { impl_->trace.restart(impl_->layers.front().weight.device()); }

Trace Preconditioner::trace() { return impl_->trace.trace(); }

std::chrono::steady_clock::time_point Preconditioner::trace_begin() const {
  return impl_->trace.begin();
}

void Preconditioner::save(torch::serialize::OutputArchive& archive) { impl_->save(archive); }

void Preconditioner::load(torch::serialize::InputArchive& archive) { impl_->load(archive); }

}  // namespace spdkfac
