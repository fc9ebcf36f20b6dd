// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/preconditioner.h"

#include <algorithm>
#include <set>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/ranges.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include "spdkfac/base/error.h"
#include "spdkfac/base/log.h"
#include "spdkfac/kfac/precondition.h"
#include "spdkfac/runtime/capture.h"
#include "spdkfac/runtime/event_log.h"
#include "spdkfac/runtime/layer_state.h"
#include "spdkfac/runtime/side_streams.h"
#include "spdkfac/runtime/step_trace.h"

namespace spdkfac {
namespace {

constexpr const char* kStateFormat = "spdkfac.kfac-state/1";

const char* side_name(FactorSide side) { return side == FactorSide::kA ? "A" : "G"; }

// Gradients that exist.
std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  return gradients;
}

// Memory that all layers share, one after the other.
class Scratch {
 public:
  // Three matrices of the shape, in the type of the factors.
  std::array<at::Tensor, 3> matrices(at::IntArrayRef shape, const at::TensorOptions& options) {
    const std::int64_t size = c10::multiply_integers(shape);
    std::array<at::Tensor, 3> result;
    for (std::size_t index = 0; index < 3; ++index) {
      at::Tensor& memory = memory_[index];
      if (!memory.defined() || memory.numel() < size || memory.dtype() != options.dtype() ||
          memory.device() != options.device()) {
        memory = at::empty({size}, options);
      }
      result[index] = memory.narrow(0, 0, size).view(shape);
    }
    return result;
  }
  Bytes bytes() const {
    Bytes total;
    for (const at::Tensor& memory : memory_) {
      if (memory.defined()) total += Bytes(static_cast<std::int64_t>(memory.nbytes()));
    }
    return total;
  }

 private:
  std::array<at::Tensor, 3> memory_;
};

Bytes bytes_of(const at::Tensor& tensor) {
  return Bytes(static_cast<std::int64_t>(tensor.nbytes()));
}

}  // namespace

class Preconditioner::Impl {
 public:
  Impl(std::vector<TrackedLayer> layers, std::vector<at::Tensor> others, const KfacOptions& options,
       std::shared_ptr<spdlog::logger> logger);

  void step(double learning_rate);
  void discard();
  void save(torch::serialize::OutputArchive& archive);
  void load(torch::serialize::InputArchive& archive);
  KfacMemory memory() const;

  const KfacOptions options;
  const std::vector<TrackedLayer> layers;
  KfacCounters counters;
  EventLog events;
  StepTrace trace;

 private:
  // Receives the capture; apart from Impl, because gradient hooks may outlive both.
  class Sink;

  void average_factors();
  void average(LayerState& state, FactorState& factor, FactorSide side);
  void refresh_inverses();
  void note_inverse(const LayerState& state, const FactorState& factor, FactorSide side);
  void precondition_gradients(double learning_rate);
  at::Tensor precondition_layer(LayerState& state);
  void scale_gradients(const at::Tensor& inner, double learning_rate);
  bool factors_due() const { return counters.steps % options.factor_interval == 0; }

  std::vector<LayerState> states_;
  std::vector<at::Tensor> others_;
  std::shared_ptr<spdlog::logger> logger_;
  std::set<std::string> warned_;
  std::shared_ptr<Sink> sink_;
  std::optional<Capture> capture_;
  Scratch scratch_;
  SideStreams streams_;
};

class Preconditioner::Impl::Sink : public CaptureSink, public std::enable_shared_from_this<Sink> {
 public:
  explicit Sink(Impl& owner) : owner_(&owner) {}

  bool wants(std::size_t) override { return owner_->factors_due(); }

  std::function<void(const at::Tensor&)> on_call(std::size_t layer, const LayerUse& use,
                                                 const at::Tensor& input,
                                                 const at::Tensor& output) override {
    LayerState& state = owner_->states_[layer];
    std::int64_t pass = 0;
    {
      const StepTrace::Span span(owner_->trace, Category::kFactorComp, "A", state.layer().name,
                                 input.device());
      pass = state.add_input(use, input, output);
    }
    return [weak = weak_from_this(), layer, use, pass](const at::Tensor& gradient) {
      const std::shared_ptr<Sink> self = weak.lock();
      if (!self) return;
      LayerState& target = self->owner_->states_[layer];
      const StepTrace::Span span(self->owner_->trace, Category::kFactorComp, "G",
                                 target.layer().name, gradient.device());
      target.add_gradient(use, gradient, pass);
    };
  }

 private:
  Impl* owner_;  // holds the only lasting reference to this object
};

Preconditioner::Impl::Impl(std::vector<TrackedLayer> tracked, std::vector<at::Tensor> others,
                           const KfacOptions& given, std::shared_ptr<spdlog::logger> logger)
    : options(given),
      layers(std::move(tracked)),
      events(logger),
      trace(given.trace),
      others_(std::move(others)),
      logger_(std::move(logger)) {
  validate(options);
  if (layers.empty()) {
    throw ConfigError("kfac: the model has no Conv2d and no Linear layer; K-FAC covers these");
  }
  states_.reserve(layers.size());
  for (const TrackedLayer& layer : layers) states_.emplace_back(layer, options);
  sink_ = std::make_shared<Sink>(*this);
  capture_.emplace(layers, sink_);
}

void Preconditioner::Impl::step(double learning_rate) {
  const c10::NoGradGuard no_grad;
  if (factors_due()) average_factors();
  if (counters.steps % options.inverse_interval == 0) refresh_inverses();
  precondition_gradients(learning_rate);
  events.end_step();
  ++counters.steps;
  trace.next_step(layers.front().weight.device());
}

void Preconditioner::Impl::discard() {
  const c10::NoGradGuard no_grad;
  for (LayerState& state : states_) state.clear();
}

void Preconditioner::Impl::average_factors() {
  for (LayerState& state : states_) {
    if (state.captured()) {
      const StepTrace::Span span(trace, Category::kFactorComp, "average", state.layer().name,
                                 state.layer().weight.device());
      average(state, state.a(), FactorSide::kA);
      average(state, state.g(), FactorSide::kG);
      state.stale = true;
    } else if (state.layer().weight.grad().defined()) {
      ++counters.layers_without_factors;
      if (warned_.insert(state.layer().name).second) {
        logger_->warn(
            "kfac: layer {} has a gradient, but no call of it was seen; its last inverses are used "
            "if there are any (was the forward pass on another thread, or in evaluation mode?)",
            state.layer().name);
      }
    }
    state.clear();
  }
}

void Preconditioner::Impl::average(LayerState& state, FactorState& factor, FactorSide side) {
  const at::Tensor finite =
      factor.average.add(factor.sum, example_scale(options.convention, side, factor.examples));
  events.note(finite.logical_not(),
              fmt::format("factor {} {}", side_name(side), state.layer().name),
              fmt::format("kfac: factor {} of layer {} (dimension {}) has a NaN or an infinity and "
                          "was left out at step {}; said once, see the counters",
                          side_name(side), state.layer().name, factor.sum.size(-1), counters.steps),
              [this](std::int64_t times) {
                counters.nonfinite_factors += times;
                counters.factor_updates -= times;
              });
  ++counters.factor_updates;
}

void Preconditioner::Impl::refresh_inverses() {
  std::vector<LayerState*> stale;
  for (LayerState& state : states_) {
    if (state.stale) stale.push_back(&state);
  }
  if (stale.empty()) return;
  // The longest first, so that the streams end together.
  const auto largest = [](const LayerState* state) {
    return std::max(state->a().sum.size(-1), state->g().sum.size(-1));
  };
  std::stable_sort(stale.begin(), stale.end(),
                   [&](const LayerState* left, const LayerState* right) {
                     return largest(left) > largest(right);
                   });
  const at::Device device = stale.front()->layer().weight.device();
  // Streams side by side have no spans of their own: one for all.
  std::optional<StepTrace::Span> all;
  if (!device.is_cpu()) all.emplace(trace, Category::kInverseComp, "inverses", "", device);
  streams_.run(device, stale.size(), [&](std::size_t index) {
    LayerState& state = *stale[index];
    std::optional<StepTrace::Span> one;
    if (device.is_cpu()) {
      one.emplace(trace, Category::kInverseComp, "inverse", state.layer().name, device);
    }
    const auto [damping_a, damping_g] = damping_of(
        state.a().average.mean(), state.g().average.mean(), options.damping_mode, options.damping);
    refresh_inverse(state.a().average.mean(), damping_a, state.a().inverse);
    refresh_inverse(state.g().average.mean(), damping_g, state.g().inverse);
  });
  for (LayerState* state : stale) {
    note_inverse(*state, state->a(), FactorSide::kA);
    note_inverse(*state, state->g(), FactorSide::kG);
    state->stale = false;
  }
}

void Preconditioner::Impl::note_inverse(const LayerState& state, const FactorState& factor,
                                        FactorSide side) {
  const std::string place = fmt::format("inverse {} {}", side_name(side), state.layer().name);
  events.note(factor.inverse.failures, place,
              fmt::format("kfac: factor {} of layer {} (dimension {}) could not be inverted with "
                          "{} damping {} at step {} and is tried with ten times as much; said "
                          "once, see the counters",
                          side_name(side), state.layer().name, factor.sum.size(-1),
                          damping_names()[static_cast<std::size_t>(options.damping_mode)],
                          options.damping, counters.steps),
              [this](std::int64_t times) { counters.inverse_retries += times; });
  events.note(
      factor.inverse.kept, place + " kept",
      fmt::format("kfac: factor {} of layer {} (dimension {}) keeps its previous inverse at "
                  "step {}; said once, see the counters",
                  side_name(side), state.layer().name, factor.sum.size(-1), counters.steps),
      [this](std::int64_t times) { counters.inverses_kept += times; });
  ++counters.inverse_updates;
}

void Preconditioner::Impl::precondition_gradients(double learning_rate) {
  std::vector<at::Tensor> inner;
  for (LayerState& state : states_) {
    if (state.ready() && state.layer().weight.grad().defined()) {
      const StepTrace::Span span(trace, Category::kPrecondition, "precondition", state.layer().name,
                                 state.layer().weight.device());
      inner.push_back(precondition_layer(state));
    }
  }
  if (inner.empty()) return;
  const StepTrace::Span span(trace, Category::kPrecondition, "clip", "", inner.front().device());
  scale_gradients(at::stack(inner).sum(), learning_rate);
}

// Replaces the layer's gradients and returns ⟨V, ∇W⟩.
at::Tensor Preconditioner::Impl::precondition_layer(LayerState& state) {
  const TrackedLayer& layer = state.layer();
  const at::Tensor weight = layer.weight.grad();
  const at::Tensor bias = layer.bias.defined() ? layer.bias.grad() : at::Tensor();
  const at::Tensor& inverse_a = state.a().inverse.value;
  const at::Tensor& inverse_g = state.g().inverse.value;
  const auto [joined, product, result] = scratch_.matrices(
      {inverse_a.size(0), inverse_g.size(1), inverse_a.size(1)}, inverse_a.options());
  if (layer.bias.defined() && !bias.defined()) joined.zero_();  // a frozen bias
  join_gradient(weight, bias, joined);
  precondition(joined, inverse_a, inverse_g, product, result);
  split_gradient(result, weight, bias);
  return at::dot(joined.view({-1}), result.view({-1})).to(at::kDouble);
}

// A sum that is not finite means that a gradient or what became of it is not: the step is skipped,
// all gradients are set to zero.
void Preconditioner::Impl::scale_gradients(const at::Tensor& inner, double learning_rate) {
  std::vector<at::Tensor> covered;
  for (const LayerState& state : states_) {
    if (!state.ready()) continue;
    covered.push_back(state.layer().weight);
    if (state.layer().bias.defined()) covered.push_back(state.layer().bias);
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
  events.note(
      bad, "gradient",
      fmt::format("kfac: a gradient has a NaN or an infinity at step {}; all gradients were "
                  "set to zero for this step; said once, see the counters",
                  counters.steps),
      [this](std::int64_t times) { counters.nonfinite_gradients += times; });
  for (const at::Tensor& gradient : covered) gradient.mul_(scale.to(gradient.scalar_type()));
  if (bad.is_cpu() && !bad.item<bool>()) return;
  covered.insert(covered.end(), others.begin(), others.end());
  for (const at::Tensor& gradient : covered) gradient.masked_fill_(bad, 0);
}

void Preconditioner::Impl::save(torch::serialize::OutputArchive& archive) {
  events.finish();
  archive.write("format", c10::IValue(std::string(kStateFormat)));
  archive.write("options", c10::IValue(digest(options)));
  archive.write("layers", c10::IValue(static_cast<std::int64_t>(states_.size())));
  const std::vector<std::int64_t> values = {counters.steps,
                                            counters.factor_updates,
                                            counters.inverse_updates,
                                            counters.nonfinite_factors,
                                            counters.inverse_retries,
                                            counters.inverses_kept,
                                            counters.nonfinite_gradients,
                                            counters.layers_without_factors};
  archive.write("counters", c10::IValue(values));
  for (std::size_t index = 0; index < states_.size(); ++index) {
    torch::serialize::OutputArchive layer(archive.compilation_unit());
    layer.write("name", c10::IValue(states_[index].layer().name));
    states_[index].save(layer);
    archive.write(fmt::format("layer_{}", index), layer);
  }
}

void Preconditioner::Impl::load(torch::serialize::InputArchive& archive) {
  const c10::NoGradGuard no_grad;
  c10::IValue value;
  if (!archive.try_read("format", value) || value.toStringRef() != kStateFormat) {
    throw ConfigError(
        fmt::format("kfac state: expected format {}; load what save() wrote", kStateFormat));
  }
  archive.read("options", value);
  if (value.toStringRef() != digest(options)) {
    throw ConfigError(fmt::format(
        "kfac state: made with other options (state: {}; here: {}); use the same options",
        value.toStringRef(), digest(options)));
  }
  archive.read("layers", value);
  if (value.toInt() != static_cast<std::int64_t>(states_.size())) {
    throw ConfigError(
        fmt::format("kfac state: {} layers, the model has {}; load a state of this model",
                    value.toInt(), states_.size()));
  }
  for (std::size_t index = 0; index < states_.size(); ++index) {
    torch::serialize::InputArchive layer;
    archive.read(fmt::format("layer_{}", index), layer);
    layer.read("name", value);
    if (value.toStringRef() != states_[index].layer().name) {
      throw ConfigError(
          fmt::format("kfac state: layer {} is {}, in the model {}; load a state of this model",
                      index, value.toStringRef(), states_[index].layer().name));
    }
    states_[index].load(layer);
  }
  archive.read("counters", value);
  const std::vector<std::int64_t> values = value.toIntVector();
  if (values.size() != 8)
    throw ConfigError("kfac state: counters are missing; load what save() wrote");
  counters = {values[0], values[1], values[2], values[3],
              values[4], values[5], values[6], values[7]};
}

KfacMemory Preconditioner::Impl::memory() const {
  KfacMemory memory;
  memory.buffers = scratch_.bytes();
  for (const LayerState& state : states_) {
    if (!state.ready()) continue;
    for (const FactorState* factor : {&state.a(), &state.g()}) {
      memory.factors += bytes_of(factor->average.mean());
      memory.inverses += bytes_of(factor->inverse.value);
      memory.buffers += bytes_of(factor->sum);
    }
  }
  return memory;
}

namespace {

// The parameters of a model outside the layers.
std::vector<at::Tensor> other_parameters(torch::nn::Module& model,
                                         const std::vector<TrackedLayer>& layers) {
  std::set<const void*> covered;
  for (const TrackedLayer& layer : layers) {
    covered.insert(layer.weight.unsafeGetTensorImpl());
    if (layer.bias.defined()) covered.insert(layer.bias.unsafeGetTensorImpl());
  }
  std::vector<at::Tensor> others;
  for (const at::Tensor& parameter : model.parameters()) {
    if (!covered.contains(parameter.unsafeGetTensorImpl())) others.push_back(parameter);
  }
  return others;
}

std::shared_ptr<spdlog::logger> logger_or_default(std::shared_ptr<spdlog::logger> logger) {
  return logger ? std::move(logger) : make_logger({});
}

}  // namespace

Preconditioner::Preconditioner(torch::nn::Module& model, const KfacOptions& options,
                               std::shared_ptr<spdlog::logger> logger) {
  std::vector<std::string> uncovered;
  std::vector<TrackedLayer> layers = tracked_layers(model, &uncovered);
  std::vector<at::Tensor> others = other_parameters(model, layers);
  logger = logger_or_default(std::move(logger));
  if (!uncovered.empty()) {
    logger->info("kfac: {} modules keep their own gradient: {}", uncovered.size(),
                 fmt::join(uncovered, ", "));
  }
  impl_ = std::make_unique<Impl>(std::move(layers), std::move(others), options, std::move(logger));
}

Preconditioner::Preconditioner(std::vector<TrackedLayer> layers, std::vector<at::Tensor> others,
                               const KfacOptions& options, std::shared_ptr<spdlog::logger> logger)
    : impl_(std::make_unique<Impl>(std::move(layers), std::move(others), options,
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

void Preconditioner::discard() { impl_->discard(); }

KfacCounters Preconditioner::counters() {
  impl_->events.finish();
  return impl_->counters;
}

KfacMemory Preconditioner::memory() const { return impl_->memory(); }

const std::vector<TrackedLayer>& Preconditioner::layers() const { return impl_->layers; }

const KfacOptions& Preconditioner::options() const { return impl_->options; }

void Preconditioner::start_trace() { impl_->trace.restart(impl_->layers.front().weight.device()); }

Trace Preconditioner::trace() { return impl_->trace.trace(); }

void Preconditioner::save(torch::serialize::OutputArchive& archive) { impl_->save(archive); }

void Preconditioner::load(torch::serialize::InputArchive& archive) { impl_->load(archive); }

}  // namespace spdkfac
