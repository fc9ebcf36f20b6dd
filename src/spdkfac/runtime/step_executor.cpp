// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/step_executor.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/error.h"

namespace spdkfac::runtime {
namespace {

constexpr FactorSide kSides[] = {FactorSide::kA, FactorSide::kG};

bool has_gradient(const LayerState& state) { return state.layer().has_gradient(); }

}  // namespace

StepExecutor::StepExecutor(Communicator& communicator, FactorBank& bank, Incidents& incidents,
                           StepRecorder& recorder, LayerGradients gradients)
    : communicator_(communicator),
      bank_(bank),
      incidents_(incidents),
      recorder_(recorder),
      gradients_(std::move(gradients)),
      launcher_(communicator, bank, gradients_, recorder),
      inverse_stage_(bank, launcher_, gradients_, recorder, communicator.rank()),
      residence_(communicator, bank) {}

void StepExecutor::adopt(const std::map<StepKind, Plan>& plans, const ModelSpec& model,
                         std::vector<std::size_t> order) {
  SPDKFAC_CHECK(plans.contains(StepKind::kFull), "no plan of a full step");
  const LayerOrder layers(std::move(order), bank_.size());
  const Residences residences = residences_of(plans.at(StepKind::kFull), layers);
  for (const auto& [id, residence] : residences) {
    // Another rank has called it.
    if (!bank_.state(id.layer).ready()) bank_.state(id.layer).make_ready();
  }
  residence_.migrate(residences);
  const auto travels = [&](std::size_t layer) {
    return residences.contains({layer, FactorSide::kA});
  };
  travelling_.clear();
  std::copy_if(layers.tracked().begin(), layers.tracked().end(), std::back_inserter(travelling_),
               travels);
  own_.clear();
  for (std::size_t layer = 0; layer < bank_.size(); ++layer) {
    if (!travels(layer)) own_.push_back(layer);
  }

  steps_.clear();
  std::int64_t elements = 0;
  for (const auto& [kind, plan] : plans) {
    const PlannedStep& step = steps_.try_emplace(kind, plan, model, layers).first->second;
    elements = std::max(elements, step.buffer_elements());
  }
  launcher_.reserve(elements, factor_options(bank_.state(0).layer().weight));
  step_ = &steps_.at(work_.kind());
  launcher_.follow(*step_);
}

void StepExecutor::begin(StepWork work, bool defer) {
  work_ = std::move(work);
  synchronized_ = false;
  received_ = 0;
  bank_.begin_step(work_.step);
  if (planned()) step_ = &steps_.at(work_.kind());
  launcher_.begin(step_, defer);
}

void StepExecutor::end() { launcher_.end(); }

void StepExecutor::discard() { launcher_.discard(); }

void StepExecutor::settle() {
  bank_.passes().decide();
  for (std::size_t layer = 0; layer < bank_.size(); ++layer) {
    if (!defers(layer)) bank_.add_deferred({layer, FactorSide::kA});
  }
}

// --- the passes ---

bool StepExecutor::defers(std::size_t layer) const {
  return step_ != nullptr && step_->defers_factors() &&
         std::find(travelling_.begin(), travelling_.end(), layer) != travelling_.end();
}

std::int64_t StepExecutor::on_call(std::size_t layer, const kfac::LayerUse& use,
                                   const at::Tensor& input, const at::Tensor& output) {
  const FactorId id{layer, FactorSide::kA};
  const StepSpan visit(recorder_, StepPart::kVisit, input.device(), "visit", bank_.name(layer), id);
  const std::int64_t pass = bank_.on_call(
      layer, use, input, output,
      [this](const at::Tensor& tensor) { return gradients_.contains(tensor); }, work_.factors,
      defers(layer));
  launcher_.factor_added(id);
  return pass;
}

void StepExecutor::on_gradient(std::size_t layer, const kfac::LayerUse& use,
                               const at::Tensor& gradient, std::int64_t pass) {
  const FactorId id{layer, FactorSide::kG};
  const StepSpan visit(recorder_, StepPart::kVisit, gradient.device(), "visit", bank_.name(layer),
                       id);
  if (work_.factors) bank_.add(id, {use, pass, gradient}, defers(layer));
  launcher_.factor_added(id);
}

// --- messages arrive ---

// Messages leave in the plan's order, so factors before a gradient leave with it; those that are
// deferred until gradients have arrived come behind all of them.
void StepExecutor::synchronize() {
  SPDKFAC_CHECK(planned(), "a step without a plan");
  if (synchronized_) return;
  require_gradients_as_sent();
  launcher_.launch_deferred();
  const std::vector<Message>& messages = step_->messages();
  std::size_t end = 0;
  for (; end < messages.size(); ++end) {
    const bool factor = is_factor(messages[end].members.front());
    if (is_means(messages[end]) || (factor && step_->defers_factors())) break;
    if (messages[end].route.root && !factor) {
      throw ConfigError(
          fmt::format("kfac: the plan of {} leaves averaged gradients with the owners of layers, "
                      "so they cannot be read before step(); choose another algorithm, or average "
                      "the gradients elsewhere (send_gradients = false)",
                      step_->plan().algorithm));
    }
    launcher_.send(end);
  }
  for (std::size_t index = 0; index < end; ++index) {
    launcher_.wait(index);
    receive_gradients(messages[index]);
  }
  synchronized_ = true;
}

// Sends what has not left yet, in the plan's order. With the bulk schedule factors are computed
// when all gradients have arrived.
void StepExecutor::send_rest() {
  launcher_.launch_deferred();
  bool deferred = step_->defers_factors();
  for (std::size_t index = 0; index < step_->messages().size(); ++index) {
    const Message& message = step_->messages()[index];
    if (is_means(message)) continue;
    if (deferred && is_factor(message.members.front())) {
      deferred = false;
      while (received_ < index) receive(received_++);
      add_deferred();
    }
    launcher_.send(index);
  }
}

void StepExecutor::add_deferred() {
  for (const std::size_t layer : travelling_) bank_.add_deferred({layer, FactorSide::kA});
  for (auto layer = travelling_.rbegin(); layer != travelling_.rend(); ++layer) {
    bank_.add_deferred({*layer, FactorSide::kG});
  }
}

void StepExecutor::receive(std::size_t index) {
  launcher_.wait(index);
  const Message& message = step_->messages()[index];
  if (message.route.root && *message.route.root != communicator_.rank()) return;
  if (!synchronized_) receive_gradients(message);
  bank_.average_packed(launcher_.factors_of(message));
}

void StepExecutor::receive_gradients(const Message& message) {
  for (const Member& member : message.members) {
    if (member.kind != TensorKind::kGradient) continue;
    const std::size_t layer = step_->order().tracked(member.layer);
    gradients_.read(layer, launcher_.slot(member), 1.0 / communicator_.size());
  }
}

// Before anything else leaves, so that ranks that all did it get the same error.
void StepExecutor::require_gradients_as_sent() const {
  for (std::size_t layer = 0; layer < bank_.size(); ++layer) {
    if (!launcher_.gradients_changed(layer)) continue;
    throw ConfigError(
        fmt::format("kfac: a gradient of layer {} was changed, replaced or dropped between "
                    "backward() and step(); on several ranks it has already been sent: call "
                    "synchronize() first",
                    bank_.name(layer)));
  }
}

// --- the step ---

std::vector<at::Tensor> StepExecutor::run() {
  SPDKFAC_CHECK(planned(), "a step without a plan");
  if (!synchronized_) require_gradients_as_sent();
  send_rest();
  if (work_.factors) note_missed_calls();
  for (; received_ < step_->messages().size(); ++received_) {
    if (!is_means(step_->messages()[received_])) receive(received_);
  }
  if (work_.factors) average_own_factors();
  std::vector<at::Tensor> inner(bank_.size());
  if (!travelling_.empty()) inverse_stage_.run(*step_, work_, travelling_, inner);
  if (work_.inverses) {
    invert_own_layers();
    bank_.keep_inverted_diagonals(work_);
  }
  inner = precondition(std::move(inner));
  bank_.turn_moments();
  launcher_.record();
  return inner;
}

// A rank that does not call a layer has no gradient of it either.
void StepExecutor::note_missed_calls() {
  for (const std::size_t layer : travelling_) {
    if (!bank_.state(layer).seen() && launcher_.has_gradient(layer)) {
      incidents_.not_captured(layer);
    }
  }
}

void StepExecutor::average_own_factors() {
  std::vector<FactorId> fresh;
  for (const std::size_t layer : own_) {
    LayerState& state = bank_.state(layer);
    if (state.captured()) {
      for (const FactorSide side : kSides) {
        state.keep(side, true, true);
        fresh.push_back({layer, side});
      }
    } else if (!state.seen() && has_gradient(state)) {
      incidents_.not_captured(layer);
    }
  }
  bank_.average(fresh);
}

void StepExecutor::invert_own_layers() {
  std::vector<std::size_t> stale;
  std::copy_if(own_.begin(), own_.end(), std::back_inserter(stale),
               [&](std::size_t layer) { return bank_.state(layer).stale; });
  bank_.invert_all(stale, work_);
}

// What no broadcast has brought. `inner` is that of each layer that has been preconditioned.
std::vector<at::Tensor> StepExecutor::precondition(std::vector<at::Tensor> inner) {
  const std::vector<bool> sent =
      layers_sending_gradient(step_->plan(), step_->order().tracked().size());
  for (const std::size_t layer : travelling_) {
    const auto planned = static_cast<std::size_t>(step_->order().planned(layer).value());
    if (!sent[planned] && has_gradient(bank_.state(layer))) {
      inner[layer] = bank_.precondition(layer);
    }
  }
  if (!step_->plan().options.second_order()) return inner;
  std::vector<std::size_t> own;
  for (const std::size_t layer : own_) {
    const LayerState& state = bank_.state(layer);
    if (!has_gradient(state)) continue;
    if (state.has_inverses()) {
      own.push_back(layer);
    } else {
      inner[layer] = bank_.without_inverses(layer);
    }
  }
  const std::vector<at::Tensor> of_own = bank_.precondition_all(own);
  for (std::size_t i = 0; i < own.size(); ++i) inner[own[i]] = of_own[i];
  return inner;
}

}  // namespace spdkfac::runtime
