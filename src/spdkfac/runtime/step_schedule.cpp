// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/step_schedule.h"

#include <algorithm>
#include <set>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/error.h"
#include "spdkfac/kfac/symmetric.h"

namespace spdkfac {
namespace {

Member factor_member(int layer, FactorSide side) {
  return {side == FactorSide::kA ? TensorKind::kFactorA : TensorKind::kFactorG, layer};
}

bool is_factor(const Member& member) {
  return member.kind == TensorKind::kFactorA || member.kind == TensorKind::kFactorG;
}

FactorSide side_of(const Member& member) {
  return member.kind == TensorKind::kFactorA ? FactorSide::kA : FactorSide::kG;
}

bool is_means(const Message& message) { return message.members.front().kind == TensorKind::kTrace; }

// The two halves of a double as elements of a message, and back.
void write_inner(const at::Tensor& inner, at::Tensor slot) {
  if (slot.scalar_type() == at::kDouble) {
    slot.zero_();
    slot.narrow(0, 0, 1).copy_(inner);
  } else {
    slot.copy_(inner.reshape({1}).view(at::kFloat));
  }
}

at::Tensor read_inner(const at::Tensor& slot) {
  if (slot.scalar_type() == at::kDouble) return slot[0].clone();
  return slot.clone().view(at::kDouble)[0];
}

}  // namespace

StepSchedule::StepSchedule(Communicator& communicator, FactorBank& bank, StepTrace& trace,
                           std::vector<std::vector<at::Tensor>> parameters)
    : communicator_(communicator),
      bank_(bank),
      trace_(trace),
      parameters_(std::move(parameters)),
      inner_(bank.size()) {
  begin(StepKind::kFull);
}

void StepSchedule::begin(StepKind kind) {
  counts_.a.assign(bank_.size(), 0);
  counts_.g.assign(bank_.size(), 0);
  counts_.gradients.clear();
  for (const auto& list : parameters_) counts_.gradients.emplace_back(list.size(), 0);
  naive_released_ = false;
  synchronized_ = false;
  versions_.assign(bank_.size(), {});
  received_ = 0;
  if (!planned()) return;
  current_ = &steps_.at(kind);
  current_->pipeline->reset(quiet_);
}

void StepSchedule::end() {
  if (!expected_) expected_ = counts_;
}

// --- tensors leave ---

void StepSchedule::computed(FactorId id) {
  std::int64_t& count = (id.side == FactorSide::kA ? counts_.a : counts_.g)[id.layer];
  ++count;
  if (!planned() || !expected_) return;
  const Member member = factor_member(static_cast<int>(plan_of_[id.layer]), id.side);
  if (!step().pipeline->contains(member)) return;
  if (step().pipeline->is_ready(member)) {
    throw ConfigError(
        fmt::format("kfac: layer {} was called {} times in a step and {} times in the first one; "
                    "with several ranks its factors have left by then: call it equally often in "
                    "each step",
                    bank_.state(id.layer).layer().name, count,
                    (id.side == FactorSide::kA ? expected_->a : expected_->g)[id.layer]));
  }
  if (schedule_ == FactorSchedule::kBulk) return;
  if (schedule_ == FactorSchedule::kNaive) {
    if (id.side == FactorSide::kG) release_naive();
    return;
  }
  leave_if_complete(member);
}

void StepSchedule::gradient_finished(std::size_t layer, std::size_t parameter) {
  ++counts_.gradients[layer][parameter];
  if (!planned() || !expected_) return;
  const Member member{TensorKind::kGradient, static_cast<int>(plan_of_[layer])};
  if (step().pipeline->is_ready(member)) {
    throw ConfigError(
        fmt::format("kfac: a gradient of layer {} was finished more often in a step than in the "
                    "first one; with several ranks it has left by then: run equally many backward "
                    "passes in each step",
                    bank_.state(layer).layer().name));
  }
  leave_if_complete(member);
}

bool StepSchedule::complete(const Member& member) const {
  const std::size_t layer = bank_layer(member.layer);
  if (member.kind == TensorKind::kFactorA) return counts_.a[layer] == expected_->a[layer];
  if (member.kind == TensorKind::kFactorG) return counts_.g[layer] == expected_->g[layer];
  return counts_.gradients[layer] == expected_->gradients[layer];
}

void StepSchedule::leave_if_complete(const Member& member) {
  if (complete(member)) leave(member);
}

// Gradients are copied at once; factors wait for those that share their message.
void StepSchedule::leave(const Member& member) {
  if (member.kind == TensorKind::kGradient) {
    const std::size_t layer = bank_layer(member.layer);
    fill_gradient(layer, step().pipeline->slot(member));
    versions_[layer] = gradient_versions(layer);
  }
  step().pipeline->ready(member);
}

std::vector<FactorBank::Packed> StepSchedule::factors_of(const Message& message) const {
  std::vector<FactorBank::Packed> factors;
  for (const Member& member : message.members) {
    if (!is_factor(member)) continue;
    factors.push_back(
        {{bank_layer(member.layer), side_of(member)}, current_->pipeline->slot(member)});
  }
  return factors;
}

// Naive: A may leave when the forward pass has ended, which the first gradient shows.
void StepSchedule::release_naive() {
  if (naive_released_) return;
  naive_released_ = true;
  for (std::size_t layer = 0; layer < order_.size(); ++layer) {
    const Member member{TensorKind::kFactorA, static_cast<int>(layer)};
    if (step().pipeline->contains(member)) leave_if_complete(member);
  }
}

std::vector<std::uint32_t> StepSchedule::gradient_versions(std::size_t layer) const {
  std::vector<std::uint32_t> versions;
  for (const at::Tensor& parameter : parameters_[layer]) {
    const at::Tensor& gradient = parameter.grad();
    versions.push_back(gradient.defined() ? static_cast<std::uint32_t>(gradient._version()) : 0);
  }
  return versions;
}

// Sends what has not left yet, in the plan's order. With the bulk schedule factors are computed
// when all gradients have arrived.
void StepSchedule::send_rest() {
  MessagePipeline& pipeline = *step().pipeline;
  pipeline.launch_held();
  bool held = holds() && step().plan.step != StepKind::kGradients;
  for (std::size_t index = 0; index < pipeline.size(); ++index) {
    const Message& message = pipeline.message(index);
    if (is_means(message)) continue;
    if (held && is_factor(message.members.front())) {
      held = false;
      while (received_ < index) receive(received_++);
      for (const std::size_t layer : order_) bank_.add_held({layer, FactorSide::kA});
      for (std::size_t i = order_.size(); i-- > 0;) bank_.add_held({order_[i], FactorSide::kG});
    }
    send(message);
  }
}

void StepSchedule::send(const Message& message) {
  MessagePipeline& pipeline = *step().pipeline;
  for (const Member& member : message.members) {
    if (!pipeline.is_ready(member)) leave(member);
  }
}

// --- and arrive ---

// Messages leave in the plan's order, so factors before a gradient leave with it; those that are
// held until gradients have arrived come behind all of them.
void StepSchedule::synchronize() {
  SPDKFAC_CHECK(planned(), "a step without a plan");
  if (synchronized_) return;
  MessagePipeline& pipeline = *step().pipeline;
  pipeline.launch_held();
  const bool held = holds() && step().plan.step != StepKind::kGradients;
  std::size_t end = 0;
  for (; end < pipeline.size(); ++end) {
    const Message& message = pipeline.message(end);
    if (is_means(message) || (held && is_factor(message.members.front()))) break;
    if (message.route.root && !is_factor(message.members.front())) {
      throw ConfigError(fmt::format(
          "kfac: the plan of {} leaves averaged gradients with the owners of layers, so they "
          "cannot "
          "be read before step(); choose another algorithm, or let someone else average them",
          step().plan.algorithm));
    }
    send(message);
  }
  for (std::size_t index = 0; index < end; ++index) {
    wait_for(index);
    receive_gradients(pipeline.message(index));
  }
  synchronized_ = true;
}

void StepSchedule::wait_for(std::size_t index) {
  const StepTrace::Wait waiting(trace_, device());
  step().pipeline->wait(index);
}

void StepSchedule::receive(std::size_t index) {
  wait_for(index);
  const MessagePipeline& pipeline = *step().pipeline;
  const Message& message = pipeline.message(index);
  if (message.route.root && *message.route.root != communicator_.rank()) return;
  if (!synchronized_) receive_gradients(message);
  bank_.average_packed(factors_of(message), communicator_.size());
}

void StepSchedule::receive_gradients(const Message& message) {
  for (const Member& member : message.members) {
    if (member.kind != TensorKind::kGradient) continue;
    const std::size_t layer = bank_layer(member.layer);
    if (gradient_versions(layer) != versions_[layer]) {
      throw ConfigError(fmt::format(
          "kfac: a gradient of layer {} was changed between backward() and step(); with "
          "several ranks it has left by then: call synchronize() first",
          bank_.state(layer).layer().name));
    }
    take_gradient(layer, step().pipeline->slot(member), 1.0 / communicator_.size());
  }
}

void StepSchedule::fill_gradient(std::size_t layer, at::Tensor slot) const {
  std::int64_t offset = 0;
  for (const at::Tensor& parameter : parameters_[layer]) {
    const at::Tensor part = slot.narrow(0, offset, parameter.numel());
    const at::Tensor& gradient = parameter.grad();
    if (gradient.defined()) {
      part.view(parameter.sizes()).copy_(gradient);
    } else {
      part.zero_();
    }
    offset += parameter.numel();
  }
}

void StepSchedule::take_gradient(std::size_t layer, const at::Tensor& slot, double scale) const {
  if (scale != 1) at::Tensor(slot).mul_(scale);
  std::int64_t offset = 0;
  for (const at::Tensor& parameter : parameters_[layer]) {
    const at::Tensor part = slot.narrow(0, offset, parameter.numel()).view(parameter.sizes());
    offset += parameter.numel();
    if (!parameter.requires_grad()) continue;
    if (!parameter.grad().defined()) parameter.mutable_grad() = at::empty_like(parameter);
    parameter.mutable_grad().copy_(part);
  }
}

// --- inverses ---

// The means of diagonals that `pi` damping needs of factors that live with different owners.
void StepSchedule::exchange_means() {
  MessagePipeline& pipeline = *step().pipeline;
  for (std::size_t index = 0; index < pipeline.size(); ++index) {
    const Message& message = pipeline.message(index);
    if (!is_means(message)) continue;
    for (const Member& member : message.members) pipeline.slot(member).zero_();
    for (const FactorPlacement& factor : step().plan.factors) {
      const Member member{TensorKind::kTrace, factor.layer};
      // Of a factor that all keep, the first rank speaks.
      if (!pipeline.contains(member) || communicator_.rank() != factor.owner.value_or(0)) continue;
      const FactorState& state = bank_.state(bank_layer(factor.layer)).factor(factor.side);
      pipeline.slot(member)
          .narrow(0, factor.side == FactorSide::kA ? 0 : 1, 1)
          .copy_(mean_diagonal(state.average->mean()));
    }
    for (const Member& member : message.members) pipeline.ready(member);
    const StepTrace::Wait waiting(trace_, device());
    pipeline.wait(index);
  }
}

std::map<int, FactorBank::DampingPair> StepSchedule::dampings() const {
  const MessagePipeline& pipeline = *current_->pipeline;
  std::set<int> layers;
  for (const FactorPlacement& factor : current_->plan.factors) {
    if (mine(factor)) layers.insert(factor.layer);
  }
  // Of some, messages have brought the means; of the others this rank keeps both averages.
  std::vector<int> order;
  std::vector<at::Tensor> sent;
  for (const int layer : layers) {
    if (!pipeline.contains({TensorKind::kTrace, layer})) continue;
    order.push_back(layer);
    sent.push_back(pipeline.slot({TensorKind::kTrace, layer}));
  }
  std::vector<FactorBank::DampingPair> all;
  if (!sent.empty()) {
    const at::Tensor means = at::stack(sent);
    all = bank_.dampings(means.select(1, 0), means.select(1, 1));
  }
  std::vector<std::size_t> kept;
  for (const int layer : layers) {
    if (pipeline.contains({TensorKind::kTrace, layer})) continue;
    order.push_back(layer);
    kept.push_back(bank_layer(layer));
  }
  for (FactorBank::DampingPair& one : bank_.dampings(kept)) all.push_back(std::move(one));
  std::map<int, FactorBank::DampingPair> result;
  for (std::size_t i = 0; i < order.size(); ++i) result.emplace(order[i], std::move(all[i]));
  return result;
}

void StepSchedule::invert_and_exchange() {
  const Plan& plan = step().plan;
  const bool inverts = plan.step == StepKind::kFull;
  exchanged_.clear();
  if (inverts && step().exchanges.empty()) {
    std::vector<std::size_t> all(order_);
    bank_.invert_all(std::move(all));
    return;
  }
  std::map<int, FactorBank::DampingPair> added;
  if (inverts) added = dampings();
  std::vector<FactorBank::Inversion> rest;  // that nobody waits for: a GPU does them at once
  const auto invert = [&](const FactorPlacement& factor) {
    if (!mine(factor)) return;
    const auto& [a, g] = added.at(factor.layer);
    const FactorBank::Inversion one{id_of(factor), factor.side == FactorSide::kA ? a : g};
    if (device().is_cuda() && !factor.owner) {
      rest.push_back(one);
    } else {
      bank_.invert({one});
    }
  };
  // As in the published code, Seq-Dist broadcasts only after all inversions. Steps in which these
  // are timed also wait for what owners precondition.
  const bool inverses_first = plan.options.placement == PlacementKind::kSequential || quiet_;
  if (inverts && inverses_first) std::for_each(plan.factors.begin(), plan.factors.end(), invert);
  std::size_t next = 0;
  for (std::size_t i = 0; i < plan.factors.size(); ++i) {
    if (inverts && !inverses_first) invert(plan.factors[i]);
    if (next == step().exchanges.size() || step().exchanges[next].last != i) continue;
    prepare_exchange(next++);
    if (!quiet_) start_exchange(exchanged_.back());
  }
  if (quiet_) {
    for (Exchanged& exchanged : exchanged_) start_exchange(exchanged);
  }
  bank_.invert(rest);
  for (const Exchanged& exchanged : exchanged_) finish_exchange(exchanged);
}

void StepSchedule::prepare_exchange(std::size_t index) {
  const ExchangeStep& exchange = step().exchanges[index];
  const FactorPlacement& factor = step().plan.factors[exchange.last];
  const bool root = exchange.root == communicator_.rank();
  Exchanged exchanged{.step = &exchange, .buffer = {}, .work = Work(), .name = {}};
  if (exchange.gradients) {
    exchanged.buffer = memory_.narrow(0, step().exchange_offsets[index], exchange.elements);
    if (root) {
      for_each_part(exchange, exchanged.buffer,
                    [&](std::size_t layer, const at::Tensor& gradients, const at::Tensor& inner) {
                      inner_[layer] = bank_.precondition(layer).to(at::kDouble);
                      fill_gradient(layer, gradients);
                      write_inner(inner_[layer], inner);
                    });
    }
  } else {
    // Where the factor has been; it is not needed any more.
    exchanged.buffer = step().pipeline->slot(factor_member(factor.layer, factor.side));
    const FactorState& state = bank_.state(bank_layer(factor.layer)).factor(factor.side);
    if (root) pack_upper(state.inverse->value, exchanged.buffer);
  }
  const char* what = factor.side == FactorSide::kA ? "inverse A" : "inverse G";
  exchanged.name = fmt::format("broadcast {} {}", exchange.gradients ? "gradient of" : what,
                               bank_.state(bank_layer(factor.layer)).layer().name);
  exchanged_.push_back(std::move(exchanged));
}

void StepSchedule::start_exchange(Exchanged& exchanged) {
  exchanged.work =
      communicator_.broadcast_async(exchanged.buffer, exchanged.step->root, exchanged.name);
}

// Each layer once, where its second factor stands.
std::vector<int> StepSchedule::layers_of(const ExchangeStep& exchange) const {
  std::vector<int> seen;
  std::vector<int> layers;
  for (std::size_t i = exchange.first; i <= exchange.last; ++i) {
    const int layer = current_->plan.factors[i].layer;
    const bool second = std::find(seen.begin(), seen.end(), layer) != seen.end();
    (second ? layers : seen).push_back(layer);
  }
  return layers;
}

void StepSchedule::for_each_part(
    const ExchangeStep& exchange, const at::Tensor& buffer,
    const std::function<void(std::size_t, const at::Tensor&, const at::Tensor&)>& visit) {
  const std::vector<int> layers = layers_of(exchange);
  std::int64_t inner =
      exchange.elements - kInnerElements * static_cast<std::int64_t>(layers.size());
  std::int64_t offset = 0;
  for (const int plan_layer : layers) {
    const std::size_t layer = bank_layer(plan_layer);
    std::int64_t elements = 0;
    for (const at::Tensor& parameter : parameters_[layer]) elements += parameter.numel();
    visit(layer, buffer.narrow(0, offset, elements), buffer.narrow(0, inner, kInnerElements));
    offset += elements;
    inner += kInnerElements;
  }
}

void StepSchedule::finish_exchange(const Exchanged& exchanged) {
  const ExchangeStep& exchange = *exchanged.step;
  {
    const StepTrace::Wait waiting(trace_, device());
    exchanged.work.wait();
  }
  if (exchange.root == communicator_.rank()) return;
  if (!exchange.gradients) {
    const FactorPlacement& factor = step().plan.factors[exchange.last];
    FactorState& state = bank_.state(bank_layer(factor.layer)).factor(factor.side);
    const StepTrace::Span span(trace_, Category::kInverseComp, "unpack inverse",
                               bank_.state(bank_layer(factor.layer)).layer().name,
                               exchanged.buffer.device());
    unpack_upper(exchanged.buffer, state.inverse->value);
    return;
  }
  for_each_part(exchange, exchanged.buffer,
                [&](std::size_t layer, const at::Tensor& gradients, const at::Tensor& inner) {
                  take_gradient(layer, gradients, 1);
                  inner_[layer] = read_inner(inner);
                });
}

std::vector<at::Tensor> StepSchedule::exchange() {
  SPDKFAC_CHECK(planned(), "a step without a plan");
  std::fill(inner_.begin(), inner_.end(), at::Tensor());
  send_rest();
  for (; received_ < step().pipeline->size(); ++received_) {
    if (!is_means(step().pipeline->message(received_))) receive(received_);
  }
  const Plan& plan = step().plan;
  if (plan.options.second_order()) {
    if (plan.step == StepKind::kFull) exchange_means();
    invert_and_exchange();
    const std::vector<bool> sent = layers_sending_gradient(plan, order_.size());
    for (std::size_t layer = 0; layer < order_.size(); ++layer) {
      const std::size_t index = order_[layer];
      if (!sent[layer] && bank_.state(index).layer().weight.grad().defined()) {
        inner_[index] = bank_.precondition(index).to(at::kDouble);
      }
    }
  }
  record_channel();
  return inner_;
}

void StepSchedule::discard() {
  if (!planned()) return;
  MessagePipeline& pipeline = *step().pipeline;
  pipeline.launch_held();
  for (std::size_t index = 0; index < pipeline.size(); ++index) {
    for (const Member& member : pipeline.message(index).members) {
      if (pipeline.is_ready(member)) continue;
      if (!is_factor(member)) pipeline.slot(member).zero_();  // factors are packed
      pipeline.ready(member);
    }
    pipeline.wait(index);
  }
}

void StepSchedule::record_channel() {
  const MessagePipeline& pipeline = *step().pipeline;
  for (std::size_t index = 0; index < pipeline.size(); ++index) {
    trace_.add_channel(step().categories[index], pipeline.name(index),
                       pipeline.message(index).elements, pipeline.work(index).span());
  }
  for (const Exchanged& exchanged : exchanged_) {
    trace_.add_channel(Category::kInverseComm, exchanged.name, exchanged.step->elements,
                       exchanged.work.span());
  }
}

}  // namespace spdkfac
