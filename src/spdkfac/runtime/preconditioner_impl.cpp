// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/preconditioner_impl.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/error.h"
#include "spdkfac/runtime/rank_agreement.h"

namespace spdkfac {
namespace {

std::vector<at::Tensor> trainable(std::vector<at::Tensor> parameters) {
  std::erase_if(parameters, [](const at::Tensor& one) { return !one.requires_grad(); });
  return parameters;
}

int ranks_of(const Distribution& distribution) {
  return distribution.communicator ? distribution.communicator->size() : 1;
}

// One rank has nobody to average gradients with. No times change its plan, or one that is given.
Distribution completed(Distribution distribution) {
  if (!distribution.communicator) distribution.communicator = make_local_communicator();
  const bool alone = distribution.communicator->size() == 1;
  if (alone) distribution.send_gradients = false;
  if (alone || std::holds_alternative<FollowPlan>(distribution.plans)) {
    distribution.profile_steps = 0;
  }
  return distribution;
}

Distribution agreed(Distribution distribution, const KfacOptions& options,
                    const std::vector<TrackedLayer>& layers,
                    const std::vector<at::Tensor>& parameters) {
  runtime::require_same_start(distribution, options, layers, trainable(parameters));
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

[[noreturn]] void refuse_second_gradient(const std::string& layer) {
  throw ConfigError(
      fmt::format("kfac: a second backward pass went through the same call of layer {} "
                  "(retain_graph=True); G needs the gradient of the whole loss: add the losses and "
                  "call backward() once, or repeat the forward pass",
                  layer));
}

}  // namespace

class Preconditioner::Impl::Sink : public runtime::CaptureSink,
                                   public std::enable_shared_from_this<Sink> {
 public:
  explicit Sink(Impl& owner) : owner_(&owner) {}

  bool wants(std::size_t) override {
    owner_->called_ = true;
    return owner_->wants_calls();
  }

  std::function<void(const at::Tensor&)> on_call(std::size_t layer, const kfac::LayerUse& use,
                                                 const at::Tensor& input,
                                                 const at::Tensor& output) override {
    Impl& owner = *owner_;
    owner.before_call();
    const std::int64_t pass = owner.executor_.on_call(layer, use, input, output);
    if (!owner.executor_.planned()) owner.calls_.add(layer, use);
    return [weak = weak_from_this(), layer, use, pass,
            done = std::make_shared<bool>(false)](const at::Tensor& gradient) {
      const std::shared_ptr<Sink> self = weak.lock();
      if (!self) return;
      if (std::exchange(*done, true)) refuse_second_gradient(self->owner_->layers[layer].name);
      self->owner_->on_gradient(layer, use, gradient, pass);
    };
  }

  void on_other_call(const kfac::LayerUse& use, const at::Tensor& input,
                     const at::Tensor& output) override {
    owner_->before_call();
    owner_->bank_.passes().on_call(use, input, output);
  }

  void on_loss(std::int64_t batch) override { owner_->bank_.passes().on_loss(batch); }

 private:
  Impl* owner_;  // holds the only lasting reference to this object
};

Preconditioner::Impl::Impl(std::vector<TrackedLayer> tracked, std::vector<at::Tensor> parameters,
                           const Distribution& distribution, const KfacOptions& given,
                           std::shared_ptr<Logger> logger)
    : options(validated(given, ranks_of(distribution))),
      layers(trained_layers(std::move(tracked))),
      first_options_(options),
      distribution_(agreed(completed(distribution), options, layers, parameters)),
      second_order_(second_order(distribution_.plans)),
      parameters_(trainable(std::move(parameters))),
      others_(other_parameters(parameters_, layers)),
      profile_(distribution_.profile_steps, second_order_),
      incidents_(layers, options, logger, place_of(*distribution_.communicator)),
      bank_(layers, options, incidents_, recorder_),
      executor_(*distribution_.communicator, bank_, incidents_, recorder_,
                runtime::LayerGradients(runtime::parameters_by_layer(layers, parameters_))),
      refreshes_(options, bank_, executor_.residence(), second_order_),
      calls_(layers.size()),
      came_(layers.size(), false),
      plans_(distribution_, options, device(), logger) {
  if (second_order_) {
    runtime::log_split_factors(layers, options.factor_limit(), *logger);
    require_memory_at_start();
  }
  if (distribution_.send_gradients)
    hook_gradients(runtime::parameters_by_layer(layers, parameters_));
  if (distribution_.messages_after_passes) executor_.hold_messages();
  executor_.begin(work(), /*defer=*/false);
  sink_ = std::make_shared<Sink>(*this);
  capture_.emplace(layers, sink_, others_);
}

// --- the passes ---

// When a pass begins and the gradients that came before it are gone, so is what they were for: the
// batch begins here. The pass of a GAN's generator through the discriminator ends so.
void Preconditioner::Impl::before_call() {
  if (bank_.passes().ended() && gradients_are_gone()) discard();
}

bool Preconditioner::Impl::gradients_are_gone() const {
  if (zeroed_) return true;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    if (came_[layer] && !layers[layer].has_gradient()) return true;
  }
  return false;
}

void Preconditioner::Impl::gradients_zeroed() {
  const bool any = std::find(came_.begin(), came_.end(), true) != came_.end();
  if (!any) return;
  if (!bank_.passes().open()) return discard();
  zeroed_ = true;
}

void Preconditioner::Impl::on_gradient(std::size_t layer, const kfac::LayerUse& use,
                                       const at::Tensor& gradient, std::int64_t pass) {
  runtime::Passes& passes = bank_.passes();
  const std::string& name = layers[layer].name;
  if (!passes.contains(pass)) {
    throw ConfigError(
        fmt::format("kfac: a backward pass went through a call of layer {} in an earlier step; its "
                    "factors are done: detach() what is kept over a step, or discard() the batch",
                    name));
  }
  const bool waited = !passes.decided();
  if (passes.on_gradient(pass) && gradients_are_gone()) {
    throw ConfigError(
        fmt::format("kfac: gradients were set to zero between the forward and the backward pass, "
                    "and A of layer {} has inputs of passes before; call zero_grad() before the "
                    "forward pass, or discard() what is not to count",
                    name));
  }
  if (waited) executor_.settle();
  came_[layer] = true;
  executor_.on_gradient(layer, use, unscaled(gradient), pass);
}

void Preconditioner::Impl::hook_gradients(const std::vector<std::vector<ParameterPart>>& by_layer) {
  std::vector<std::pair<std::size_t, std::size_t>> places;
  std::vector<at::Tensor> in_order;
  for (std::size_t layer = 0; layer < by_layer.size(); ++layer) {
    for (std::size_t i = 0; i < by_layer[layer].size(); ++i) {
      places.emplace_back(layer, i);
      in_order.push_back(by_layer[layer][i].parameter);
    }
  }
  gradient_hooks_ =
      std::make_unique<runtime::GradientHooks>(in_order, [this, places](std::size_t index) {
        const auto [layer, gradient] = places[index];
        if (gradient == 0) came_[layer] = true;  // the leading one's
        executor_.gradient_finished(layer, gradient);
      });
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

void Preconditioner::Impl::step(double learning_rate, const Momentum& momentum) {
  if (learning_rate == 0 && !called_) return;
  require_no_trial();
  const c10::NoGradGuard no_grad;
  recorder_.passes_end(device());
  if (!executor_.planned()) make_first_plan();
  const KfacCounters before = incidents_.counters();
  const int queued = variant();
  runtime::ReplayedSteps::Outcome outcome;
  for (std::size_t layer = 0; layer < bank_.size(); ++layer) {
    outcome.averaged.push_back(executor_.work().factors && bank_.state(layer).captured());
  }
  const std::vector<at::Tensor> inner = executor_.run();
  executor_.end();
  forget_passes();
  clip(inner, learning_rate, momentum);
  outcome.made = updates_between(before, incidents_.counters());
  outcome.stale = stale();
  replays_.ran(queued, std::move(outcome));
  incidents_.end_step();
  refreshes_.ran(steps_, executor_.work());
  incidents_.counters().steps = ++steps_;
  keep_events();
  if (profile_.ended(executor_.work().factors)) make_plan_again();
  if (profile_.active()) timing_ = profile_.times(work().factors);
  begin_step();
}

void Preconditioner::Impl::begin_step() {
  called_ = false;
  executor_.begin(work(), timing_);
  if (options.trace || timing_) recorder_.start(device());
}

void Preconditioner::Impl::keep_events() {
  const std::shared_ptr<const runtime::StepEvents> events = recorder_.finish(device());
  if (!events) return;
  if (options.trace) last_events_ = events;
  if (timing_) timed_.push_back(events);
}

void Preconditioner::Impl::clip(const std::vector<at::Tensor>& inner, double learning_rate,
                                const Momentum& momentum) {
  const runtime::StepSpan span(recorder_, runtime::StepPart::kClip, device(), "clip");
  const std::vector<runtime::ClippedLayer> clipped = runtime::clipped_layers(layers, inner);
  if (clipped.empty()) return;
  const std::vector<ParameterPart> unclipped = runtime::with_unclipped(layers, inner, others_);
  const runtime::Clipped result = runtime::clip_gradients(clipped,
                                                          {.kl_clip = options.kl_clip,
                                                           .learning_rate = learning_rate,
                                                           .momentum = momentum,
                                                           .grafted = options.sets_length(),
                                                           .rate = rate_},
                                                          unclipped);
  incidents_.gradients(result.bad);
  incidents_.scaled(clipped, result.raw);
  begin_trial(clipped, result, unclipped);
}

// --- everything else ---

std::vector<bool> Preconditioner::Impl::stale() const {
  std::vector<bool> stale;
  for (std::size_t layer = 0; layer < bank_.size(); ++layer) {
    stale.push_back(bank_.state(layer).stale);
  }
  return stale;
}

int Preconditioner::Impl::variant() {
  return replays_.variant(work().factors, work().inverses, stale());
}

void Preconditioner::Impl::count_replayed_step(int variant) {
  SPDKFAC_CHECK(ranks() == 1, "a replayed step of several ranks");
  KfacCounters& counters = incidents_.counters();
  const runtime::ReplayedSteps::Outcome outcome = replays_.replayed(variant, stale());
  for (std::size_t layer = 0; layer < bank_.size(); ++layer) {
    bank_.state(layer).stale = outcome.stale[layer];
  }
  const KfacCounters& made = outcome.made;
  counters.factor_updates += made.factor_updates;
  counters.inverse_updates += made.inverse_updates;
  counters.layers_without_factors += made.layers_without_factors;
  counters.steps = ++steps_;
  executor_.begin(work(), /*defer=*/false);
}

std::vector<std::size_t> Preconditioner::Impl::unseen_layers() const {
  std::vector<std::size_t> unseen;
  for (std::size_t layer = 0; work().factors && layer < layers.size(); ++layer) {
    if (!executor_.called(layer) && layers[layer].has_gradient()) unseen.push_back(layer);
  }
  return unseen;
}

void Preconditioner::Impl::discard() {
  const c10::NoGradGuard no_grad;
  if (!executor_.planned()) calls_ = runtime::CallLog(layers.size());
  executor_.discard();
  executor_.begin(work(), timing_);
  forget_passes();
}

void Preconditioner::Impl::forget_passes() {
  bank_.clear();
  came_.assign(layers.size(), false);
  zeroed_ = false;
  called_ = false;
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

}  // namespace spdkfac
