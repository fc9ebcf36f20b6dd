// SPDX-License-Identifier: Apache-2.0
// Which rank keeps which averages and inverses, and how they move when the plan changes.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include "spdkfac/base/check.h"
#include "spdkfac/kfac/symmetric.h"
#include "spdkfac/plan/compute_stream.h"
#include "spdkfac/runtime/step_schedule.h"

namespace spdkfac {
namespace {

// A packed matrix and a number of its own, as one message.
at::Tensor state_buffer(const FactorState& state) {
  const std::int64_t dim = state.dim();
  return at::zeros({packed_elements(dim) + 1}, state.sum.options().dtype(at::kDouble));
}

void write_state(const at::Tensor& matrix, const at::Tensor& number, at::Tensor buffer) {
  const std::int64_t elements = buffer.numel() - 1;
  at::Tensor packed = at::empty({elements}, matrix.options());
  pack_upper(matrix, packed);
  buffer.narrow(0, 0, elements).copy_(packed);
  buffer.narrow(0, elements, 1).copy_(number);
}

}  // namespace

void StepSchedule::adopt(const std::map<StepKind, Plan>& plans, const ModelSpec& model,
                         const std::vector<std::size_t>& order, StepKind now) {
  SPDKFAC_CHECK(plans.contains(StepKind::kFull), "no plan of a full step");
  order_ = order;
  plan_of_.assign(bank_.size(), 0);
  for (std::size_t layer = 0; layer < order.size(); ++layer) plan_of_[order[layer]] = layer;
  const Plan& full = plans.at(StepKind::kFull);
  schedule_ = full.options.factor_schedule;

  Homes homes(2 * bank_.size());
  for (const Message& message : full.messages) {
    for (const Member& member : message.members) {
      if (member.kind != TensorKind::kFactorA && member.kind != TensorKind::kFactorG) continue;
      const FactorSide side = member.kind == TensorKind::kFactorA ? FactorSide::kA : FactorSide::kG;
      homes[home_index({bank_layer(member.layer), side})].average = message.route.root;
    }
  }
  for (const FactorPlacement& factor : full.factors) {
    if (factor.sends_gradient) homes[home_index(id_of(factor))].inverse = factor.owner;
  }
  if (full.options.second_order()) move_home(homes);

  steps_.clear();
  std::int64_t elements = 0;
  for (const auto& [kind, plan] : plans) {
    Step next{.plan = plan,
              .exchanges = exchange_steps(plan, model),
              .exchange_offsets = {},
              .categories = {},
              .pipeline = std::make_unique<MessagePipeline>(
                  plan, model, communicator_,
                  // Cost models of the bulk schedule count packing as part of factor times.
                  [this](const Message& message) { bank_.pack(factors_of(message), holds()); })};
    for (const Message& message : plan.messages) {
      next.categories.push_back(category_of(message, model));
    }
    std::int64_t offset = MessagePipeline::elements(plan);
    for (const ExchangeStep& exchange : next.exchanges) {
      next.exchange_offsets.push_back(offset);
      if (exchange.gradients) offset += exchange.elements;
    }
    elements = std::max(elements, offset);
    steps_.emplace(kind, std::move(next));
  }
  if (!memory_.defined() || memory_.numel() < elements) {
    memory_ = at::zeros({elements}, buffer_options());
  }
  for (auto& [kind, next] : steps_) next.pipeline->use_memory(memory_);
  current_ = &steps_.at(now);
}

// In the type of the factors, which is that of the weights or wider.
at::TensorOptions StepSchedule::buffer_options() const {
  const at::Tensor& weight = bank_.state(order_.front()).layer().weight;
  const bool is_double = weight.scalar_type() == at::kDouble;
  return at::TensorOptions().device(weight.device()).dtype(is_double ? at::kDouble : at::kFloat);
}

// Sends what single ranks keep to those that will.
void StepSchedule::move_home(const Homes& homes) {
  for (const std::size_t layer : order_) {
    for (const FactorSide side : {FactorSide::kA, FactorSide::kG}) {
      const FactorId id{layer, side};
      if (homes_.empty()) continue;
      const Home& from = homes_[home_index(id)];
      const Home& to = homes[home_index(id)];
      if (from.average && from.average != to.average) share_average(id, *from.average);
      if (from.inverse && from.inverse != to.inverse) share_inverse(id, *from.inverse);
    }
  }
  homes_ = homes;
  keep_what_is_needed();
}

void StepSchedule::share_average(FactorId id, int root) {
  LayerState& layer = bank_.state(id.layer);
  FactorState& state = layer.factor(id.side);
  at::Tensor buffer = state_buffer(state);
  if (communicator_.rank() == root) {
    write_state(state.average->mean(), state.average->weight(), buffer);
  }
  communicator_.broadcast_async(buffer, root, "running average " + layer.layer().name).wait();
  if (communicator_.rank() == root) return;
  layer.keep(id.side, true, state.inverse.has_value());
  at::Tensor mean = at::empty_like(state.sum);
  const std::int64_t elements = buffer.numel() - 1;
  unpack_upper(buffer.narrow(0, 0, elements).to(mean.scalar_type()), mean);
  state.average->restore(mean, buffer[elements]);
}

void StepSchedule::share_inverse(FactorId id, int root) {
  LayerState& layer = bank_.state(id.layer);
  FactorState& state = layer.factor(id.side);
  at::Tensor buffer = state_buffer(state);
  if (communicator_.rank() == root) write_state(state.inverse->value, state.inverse->boost, buffer);
  communicator_.broadcast_async(buffer, root, "inverse " + layer.layer().name).wait();
  if (communicator_.rank() == root) return;
  layer.keep(id.side, state.average.has_value(), true);
  const std::int64_t elements = buffer.numel() - 1;
  unpack_upper(buffer.narrow(0, 0, elements).to(state.sum.scalar_type()), state.inverse->value);
  state.inverse->boost.copy_(buffer.narrow(0, elements, 1));
}

void StepSchedule::gather_state() {
  if (homes_.empty()) return;
  for (const std::size_t layer : order_) {
    for (const FactorSide side : {FactorSide::kA, FactorSide::kG}) {
      const Home& home = homes_[home_index({layer, side})];
      if (home.average) share_average({layer, side}, *home.average);
      if (home.inverse) share_inverse({layer, side}, *home.inverse);
    }
  }
}

void StepSchedule::keep_what_is_needed() {
  if (homes_.empty()) return;
  const auto here = [&](const std::optional<int>& rank) {
    return !rank || *rank == communicator_.rank();
  };
  for (const std::size_t layer : order_) {
    for (const FactorSide side : {FactorSide::kA, FactorSide::kG}) {
      const Home& home = homes_[home_index({layer, side})];
      bank_.state(layer).keep(side, here(home.average), here(home.inverse));
    }
  }
}

Bytes StepSchedule::buffer_bytes() const {
  return memory_.defined() ? Bytes(static_cast<std::int64_t>(memory_.nbytes())) : Bytes();
}

}  // namespace spdkfac
