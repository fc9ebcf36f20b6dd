// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/layer_state.h"

#include <utility>

#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>
#include <torch/types.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/error.h"
#include "spdkfac/kfac/symmetric.h"

namespace spdkfac::runtime {
namespace {

at::TensorOptions factor_tensor(const at::Tensor& weight) {
  const bool is_double = weight.scalar_type() == at::kDouble;
  return at::TensorOptions().device(weight.device()).dtype(is_double ? at::kDouble : at::kFloat);
}

// The average travels as packed triangles: half the size, and nothing below the diagonal is meant.
void save_factor(torch::serialize::OutputArchive& archive, const std::string& prefix,
                 const FactorState& factor) {
  const at::Tensor& mean = factor.average->mean();
  const std::int64_t dim = mean.size(-1);
  at::Tensor packed = at::empty({mean.size(0) * (dim * (dim + 1) / 2)}, mean.options());
  kfac::pack_upper(mean, packed);
  archive.write(prefix + "_mean", packed);
  archive.write(prefix + "_weight", factor.average->weight());
  archive.write(prefix + "_inverse", factor.inverse->value);
  archive.write(prefix + "_boost", factor.inverse->boost);
}

at::Tensor read_tensor(torch::serialize::InputArchive& archive, const std::string& key,
                       const at::Tensor& like, at::IntArrayRef shape, const std::string& layer) {
  at::Tensor tensor;
  if (!archive.try_read(key, tensor) || tensor.sizes() != shape ||
      tensor.scalar_type() != like.scalar_type()) {
    throw ConfigError(
        fmt::format("kfac state: layer {}: {} is missing, or its shape or type differs; load a "
                    "state of this model",
                    layer, key));
  }
  return tensor.to(like.device());
}

void load_factor(torch::serialize::InputArchive& archive, const std::string& prefix,
                 FactorState& factor, const std::string& layer) {
  at::Tensor mean = at::empty_like(factor.average->mean());
  const std::int64_t dim = mean.size(-1);
  kfac::unpack_upper(
      read_tensor(archive, prefix + "_mean", mean, {mean.size(0) * (dim * (dim + 1) / 2)}, layer),
      mean);
  const at::Tensor& weight = factor.average->weight();
  factor.average->restore(mean, read_tensor(archive, prefix + "_weight", weight, {}, layer));
  at::Tensor& inverse = factor.inverse->value;
  inverse.copy_(read_tensor(archive, prefix + "_inverse", inverse, inverse.sizes(), layer));
  at::Tensor& boost = factor.inverse->boost;
  boost.copy_(read_tensor(archive, prefix + "_boost", boost, boost.sizes(), layer));
}

}  // namespace

void FactorState::clear() {
  summed = false;
  examples = 0;
}

LayerState::LayerState(TrackedLayer layer, const KfacOptions& options)
    : layer_(std::move(layer)), options_(&options) {}

void LayerState::make_ready(std::int64_t groups) {
  if (ready()) {
    if (a_->sum.device() == layer_.weight.device()) return;
    throw ConfigError(
        fmt::format("kfac: layer {} moved from {} to {} after the first step; create the "
                    "Preconditioner after moving the model",
                    layer_.name, a_->sum.device().str(), layer_.weight.device().str()));
  }
  const at::Tensor& weight = layer_.weight;
  const std::int64_t d_a = weight[0].numel() + (layer_.bias.defined() ? 1 : 0);
  const at::TensorOptions tensor = factor_tensor(weight);
  a_.emplace().sum = at::zeros({groups, d_a, d_a}, tensor);
  const std::int64_t d_g = weight.size(0) / groups;
  g_.emplace().sum = at::zeros({groups, d_g, d_g}, tensor);
}

void LayerState::keep(FactorSide side, bool average, bool inverse) {
  FactorState& state = factor(side);
  const std::int64_t groups = state.sum.size(0);
  if (!average) state.average.reset();
  if (!inverse) state.inverse.reset();
  if (average && !state.average) {
    state.average.emplace(groups, state.dim(), options_->running_average, options_->identity_start,
                          state.sum.options());
  }
  if (inverse && !state.inverse) state.inverse.emplace(groups, state.dim(), state.sum.options());
}

std::int64_t LayerState::add_call(const kfac::LayerUse& use, const at::Tensor& input,
                                  const at::Tensor& output, bool defer) {
  make_ready(use.groups());
  const bool same_pass = a_->examples > 0 && gradient_pass_ != pass_ && !last_call_.expired();
  if (!same_pass) {
    ++pass_;
    a_->examples += use.examples;
  }
  last_call_ = output.grad_fn();
  const Call call{use, input.detach()};
  if (defer) {
    deferred(FactorSide::kA).push_back(call);
  } else {
    add(FactorSide::kA, call);
  }
  return pass_;
}

void LayerState::add_gradient(const kfac::LayerUse& use, const at::Tensor& gradient,
                              std::int64_t pass, bool defer) {
  if (gradient_pass_ != pass) {
    gradient_pass_ = pass;
    g_->examples += use.examples;
  }
  const Call call{use, gradient.detach()};
  if (defer) {
    deferred(FactorSide::kG).push_back(call);
  } else {
    add(FactorSide::kG, call);
  }
}

void LayerState::add_deferred(FactorSide side) {
  for (const Call& call : std::exchange(deferred(side), {})) add(side, call);
}

void LayerState::add(FactorSide side, const Call& call) {
  FactorState& state = factor(side);
  const double scale = kfac::position_scale(options_->convention, side, call.use);
  const auto multiply =
      side == FactorSide::kA ? kfac::add_input_products : kfac::add_gradient_products;
  multiply(call.tensor, call.use, scale, options_->patch_memory, state.sum,
           /*overwrite=*/!state.summed);
  state.summed = true;
}

void LayerState::clear() {
  for (std::vector<Call>& calls : deferred_) calls.clear();
  if (!ready()) return;
  a_->clear();
  g_->clear();
}

void LayerState::save(torch::serialize::OutputArchive& archive) const {
  // A layer that was called but never averaged starts as one that was not.
  const bool kept = has_averages() && has_inverses();
  archive.write("ready", c10::IValue(kept));
  if (!kept) return;
  archive.write("groups", c10::IValue(a_->sum.size(0)));
  archive.write("stale", c10::IValue(stale));
  save_factor(archive, "a", *a_);
  save_factor(archive, "g", *g_);
}

void LayerState::load(torch::serialize::InputArchive& archive) {
  c10::IValue value;
  archive.read("ready", value);
  if (!value.toBool()) return;
  archive.read("groups", value);
  const std::int64_t groups = value.toInt();
  if (groups < 1 || layer_.weight.size(0) % groups != 0) {
    throw ConfigError(fmt::format("kfac state: layer {}: {} groups; load a state of this model",
                                  layer_.name, groups));
  }
  make_ready(groups);
  for (const FactorSide side : {FactorSide::kA, FactorSide::kG}) keep(side, true, true);
  archive.read("stale", value);
  stale = value.toBool();
  load_factor(archive, "a", *a_, layer_.name);
  load_factor(archive, "g", *g_, layer_.name);
}

}  // namespace spdkfac::runtime
