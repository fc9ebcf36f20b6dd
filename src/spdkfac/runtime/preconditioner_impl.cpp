// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/preconditioner_impl.h"

#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/error.h"
#include "spdkfac/runtime/clipping.h"
#include "spdkfac/runtime/kfac_state.h"

namespace spdkfac {
namespace {

std::vector<at::Tensor> trainable(std::vector<at::Tensor> parameters) {
  std::erase_if(parameters, [](const at::Tensor& one) { return !one.requires_grad(); });
  return parameters;
}

int ranks_of(const Distribution& distribution) {
  return distribution.communicator ? distribution.communicator->size() : 1;
}

KfacOptions validated(const KfacOptions& options, int world) {
  validate(options);
  if (world > 1 && options.inverse_interval % options.factor_interval != 0) {
    throw ConfigError(
        fmt::format("kfac: inverse_interval={} is not a multiple of factor_interval={}; on several "
                    "ranks, new inverses come with new factors: choose a multiple",
                    options.inverse_interval, options.factor_interval));
  }
  return options;
}

std::vector<TrackedLayer> not_empty(std::vector<TrackedLayer> layers) {
  if (layers.empty()) {
    throw ConfigError("kfac: the model has no Conv2d or Linear layer, which K-FAC needs");
  }
  return layers;
}

// One rank has nobody to average gradients with, and a plan that no times change.
Distribution completed(Distribution distribution) {
  if (!distribution.communicator) distribution.communicator = make_local_communicator();
  if (distribution.communicator->size() == 1) {
    distribution.send_gradients = false;
    distribution.profile_steps = 0;
  }
  return distribution;
}

std::string place_of(const Communicator& communicator) {
  return communicator.size() == 1 ? "" : fmt::format(" on rank {}", communicator.rank());
}

// What the host counts; incidents are counted when they arrive.
KfacCounters updates_between(const KfacCounters& before, const KfacCounters& after) {
  KfacCounters made;
  made.factor_updates = after.factor_updates - before.factor_updates;
  made.inverse_updates = after.inverse_updates - before.inverse_updates;
  made.layers_without_factors = after.layers_without_factors - before.layers_without_factors;
  return made;
}

}  // namespace

class Preconditioner::Impl::Sink : public runtime::CaptureSink,
                                   public std::enable_shared_from_this<Sink> {
 public:
  explicit Sink(Impl& owner) : owner_(&owner) {}

  bool wants(std::size_t) override { return owner_->wants_calls(); }

  std::function<void(const at::Tensor&)> on_call(std::size_t layer, const kfac::LayerUse& use,
                                                 const at::Tensor& input,
                                                 const at::Tensor& output) override {
    const std::int64_t pass = owner_->executor_.on_call(layer, use, input, output);
    if (!owner_->executor_.planned()) owner_->calls_.add(layer, use);
    return [weak = weak_from_this(), layer, use, pass](const at::Tensor& gradient) {
      const std::shared_ptr<Sink> self = weak.lock();
      if (!self) return;
      Impl& owner = *self->owner_;
      owner.executor_.on_gradient(layer, use, owner.unscaled(gradient), pass);
    };
  }

 private:
  Impl* owner_;  // holds the only lasting reference to this object
};

Preconditioner::Impl::Impl(std::vector<TrackedLayer> tracked, std::vector<at::Tensor> parameters,
                           const Distribution& distribution, const KfacOptions& given,
                           std::shared_ptr<spdlog::logger> logger)
    : options(validated(given, ranks_of(distribution))),
      layers(not_empty(std::move(tracked))),
      distribution_(completed(distribution)),
      second_order_(second_order(distribution_.plans)),
      parameters_(trainable(std::move(parameters))),
      others_(other_parameters(parameters_, layers)),
      incidents_(layers, options, logger, place_of(*distribution_.communicator)),
      bank_(layers, options, incidents_, recorder_),
      executor_(*distribution_.communicator, bank_, incidents_, recorder_,
                runtime::LayerGradients(runtime::parameters_by_layer(layers, parameters_))),
      calls_(layers.size()),
      plans_(distribution_, options, device(), std::move(logger)) {
  if (distribution_.send_gradients)
    hook_gradients(runtime::parameters_by_layer(layers, parameters_));
  executor_.begin(work(), /*defer=*/false);
  sink_ = std::make_shared<Sink>(*this);
  capture_.emplace(layers, sink_);
}

void Preconditioner::Impl::hook_gradients(const std::vector<std::vector<at::Tensor>>& by_layer) {
  std::vector<std::pair<std::size_t, std::size_t>> places;
  std::vector<at::Tensor> in_order;
  for (std::size_t layer = 0; layer < by_layer.size(); ++layer) {
    for (std::size_t i = 0; i < by_layer[layer].size(); ++i) {
      places.emplace_back(layer, i);
      in_order.push_back(by_layer[layer][i]);
    }
  }
  gradient_hooks_ =
      std::make_unique<runtime::GradientHooks>(in_order, [this, places](std::size_t index) {
        executor_.gradient_finished(places[index].first, places[index].second);
      });
}

runtime::StepWork Preconditioner::Impl::work() const {
  return {.factors = second_order_ && steps_ % options.factor_interval == 0,
          .inverses = !second_order_ || steps_ % options.inverse_interval == 0};
}

// In the type of the factors: half precision could not hold the quotient.
at::Tensor Preconditioner::Impl::unscaled(const at::Tensor& gradient) const {
  if (!loss_scale_ || !executor_.work().factors) return gradient;
  const c10::NoGradGuard no_grad;
  const at::Tensor scale = loss_scale_().to(gradient.device());
  const auto wide = gradient.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return gradient.to(wide).mul(scale.to(at::kDouble).reciprocal().to(wide));
}

void Preconditioner::Impl::synchronize() {
  if (!distribution_.send_gradients) return;
  const c10::NoGradGuard no_grad;
  if (!executor_.planned()) make_first_plan();
  executor_.synchronize();
}

void Preconditioner::Impl::step(double learning_rate) {
  const c10::NoGradGuard no_grad;
  recorder_.passes_end(device());
  if (!executor_.planned()) make_first_plan();
  const KfacCounters before = incidents_.counters();
  const std::vector<at::Tensor> inner = executor_.run();
  bank_.clear();
  if (!inner.empty()) clip(inner, learning_rate);
  per_step_[variant()] = updates_between(before, incidents_.counters());
  incidents_.end_step();
  incidents_.counters().steps = ++steps_;
  executor_.end();
  keep_events();
  if (steps_seen_ == distribution_.profile_steps && steps_seen_ > 0) make_plan_again();
  // The first step is for warming up.
  if (steps_seen_++ == 0 && distribution_.profile_steps > 0) timing_ = true;
  begin_step();
}

void Preconditioner::Impl::begin_step() {
  executor_.begin(work(), timing_);
  if (options.trace || timing_) recorder_.start(device());
}

void Preconditioner::Impl::keep_events() {
  const std::shared_ptr<const runtime::StepEvents> events = recorder_.finish(device());
  if (!events) return;
  if (options.trace) last_events_ = events;
  if (timing_) timed_.push_back(events);
}

void Preconditioner::Impl::clip(const std::vector<at::Tensor>& inner, double learning_rate) {
  const runtime::StepSpan span(recorder_, runtime::StepPart::kClip, device(), "clip");
  std::vector<at::Tensor> covered;
  for (std::size_t layer = 0; layer < bank_.size(); ++layer) {
    if (!bank_.state(layer).ready()) continue;
    for (const at::Tensor& own : own_parameters(layers[layer])) covered.push_back(own);
  }
  incidents_.gradients(runtime::clip_gradients(at::stack(inner).to(at::kDouble).sum(),
                                               options.kl_clip, learning_rate, covered, others_));
}

// --- plans ---

// The order of layers and their work are known after the first forward pass.
void Preconditioner::Impl::make_first_plan() {
  plans_.make_first(layers, calls_, parameters_);
  executor_.adopt(plans_.followed(), plans_.model(), calls_.order());
}

void Preconditioner::Impl::make_plan_again() {
  timing_ = false;
  plans_.make_again(runtime::joined_times(profiles()));
  timed_.clear();
  executor_.adopt(plans_.followed(), plans_.model(), calls_.order());
}

void Preconditioner::Impl::time_layers(bool on) {
  if (plans_.model().layers.empty()) {
    throw ConfigError(
        "kfac: layers can be timed only on several ranks and with a plan; call time_layers() after "
        "the first step");
  }
  timing_ = on;
  executor_.begin(work(), timing_);
  if (!timing_ && !options.trace) recorder_.stop();
  if (timing_ && !recorder_.on()) recorder_.start(device());
}

std::vector<runtime::RankProfile> Preconditioner::Impl::profiles() {
  if (timed_.empty()) {
    throw ConfigError("kfac: no layers were timed; call time_layers() before a step");
  }
  return runtime::profiles_of_ranks(
      runtime::profile_of(timed_, plans_.model().layers, calls_.order()),
      *distribution_.communicator, device());
}

void Preconditioner::Impl::start_trace() {
  if (options.trace) recorder_.start(device());
}

// --- everything else ---

int Preconditioner::Impl::variant() const {
  return (work().factors ? 1 : 0) + (work().inverses ? 2 : 0);
}

void Preconditioner::Impl::count_replayed_step() {
  SPDKFAC_CHECK(ranks() == 1, "a replayed step of several ranks");
  KfacCounters& counters = incidents_.counters();
  const KfacCounters& made = per_step_.at(variant());
  counters.factor_updates += made.factor_updates;
  counters.inverse_updates += made.inverse_updates;
  counters.layers_without_factors += made.layers_without_factors;
  counters.steps = ++steps_;
  executor_.begin(work(), /*defer=*/false);
}

void Preconditioner::Impl::discard() {
  const c10::NoGradGuard no_grad;
  if (!executor_.planned()) calls_ = runtime::CallLog(layers.size());
  executor_.discard();
  executor_.begin(work(), timing_);
  bank_.clear();
}

KfacCounters Preconditioner::Impl::counters() {
  incidents_.finish();
  return incidents_.counters();
}

KfacMemory Preconditioner::Impl::memory() const {
  KfacMemory memory = bank_.memory();
  memory.buffers += executor_.buffer_bytes();
  return memory;
}

void Preconditioner::Impl::save(torch::serialize::OutputArchive& archive) {
  incidents_.finish();
  executor_.gather_state();
  save_state(archive, bank_, incidents_.counters(), options);
  executor_.drop_state_of_others();
}

void Preconditioner::Impl::load(torch::serialize::InputArchive& archive) {
  incidents_.counters() = load_state(archive, bank_, options);
  steps_ = incidents_.counters().steps;
  executor_.drop_state_of_others();
  executor_.begin(work(), timing_);
}

}  // namespace spdkfac
