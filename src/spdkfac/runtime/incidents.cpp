// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/incidents.h"

#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace spdkfac::runtime {

Incidents::Incidents(const std::vector<TrackedLayer>& layers, const KfacOptions& options,
                     std::shared_ptr<Logger> logger, std::string place)
    : options_(options),
      logger_(std::move(logger)),
      place_(std::move(place)),
      not_captured_known_(layers.size(), false) {
  for (const TrackedLayer& layer : layers) names_.push_back(layer.name);
}

void Incidents::averaged(const std::vector<Factor>& factors, const at::Tensor& finite) {
  counters_.factor_updates += static_cast<std::int64_t>(factors.size());
  note(IncidentKind::kFactorNotFinite, factors, finite.logical_not());
}

void Incidents::absent(const std::vector<Factor>& factors, const at::Tensor& flags) {
  note(IncidentKind::kFactorAbsent, factors, flags);
}

void Incidents::inverted(const std::vector<Factor>& factors, const at::Tensor& failures,
                         const at::Tensor& kept) {
  counters_.inverse_updates += static_cast<std::int64_t>(factors.size());
  std::vector<Factor> of_element;
  for (const Factor& factor : factors) {
    of_element.insert(of_element.end(), static_cast<std::size_t>(factor.flags), factor);
  }
  note(IncidentKind::kInverseFailed, of_element, failures);
  note(IncidentKind::kInverseKept, std::move(of_element), kept);
}

void Incidents::gradients(const at::Tensor& bad) {
  note(IncidentKind::kGradientNotFinite, {}, bad);
}

void Incidents::not_captured(std::size_t layer) {
  ++counters_.layers_without_factors;
  if (not_captured_known_[layer]) return;
  not_captured_known_[layer] = true;
  not_captured_new_.push_back(names_[layer]);
}

void Incidents::scaled(const std::vector<ClippedLayer>& layers, const at::Tensor& raw) {
  std::vector<Factor> of_element;
  for (const ClippedLayer& one : layers) of_element.push_back({{one.layer, FactorSide::kA}});
  note(IncidentKind::kLayerScaled, std::move(of_element), raw);
}

void Incidents::end_step() {
  take(log_.end_step());
  write_lines();
}

void Incidents::finish() {
  take(log_.finish());
  write_lines();
}

void Incidents::note(IncidentKind kind, std::vector<Factor> factors, const at::Tensor& flag) {
  take(log_.note(flag, {kind, std::move(factors), counters_.steps}));
}

void Incidents::take(const std::vector<Incident>& incidents) {
  for (const Incident& incident : incidents) {
    const IncidentKind kind = incident.note->kind;
    count(kind, incident.times);
    if (kind == IncidentKind::kFactorAbsent) continue;
    // Of layers that are not seen another line says so.
    if (kind == IncidentKind::kLayerScaled &&
        not_captured_known_[incident.note->factors[incident.index].id.layer]) {
      continue;
    }
    const std::string subject = subject_of(incident);
    if (known_.emplace(kind, subject).second) new_[{kind, incident.note->step}].push_back(subject);
  }
}

void Incidents::write_lines() {
  const auto lines = std::exchange(new_, {});
  const std::vector<std::string> not_captured = std::exchange(not_captured_new_, {});
  if (!logger_) return;
  for (const auto& [what, subjects] : lines) {
    logger_->warn(fmt::format(
        "kfac: {}; further occurrences are only counted",
        text_of(what.first, what.second, fmt::format("{}", fmt::join(subjects, ", ")))));
  }
  if (not_captured.empty()) return;
  logger_->warn(fmt::format(
      "kfac: layers with a gradient of which no call was seen: {}; their last inverses are used, "
      "or, without any, their gradients {} (did the forward pass run on another thread, in "
      "evaluation mode, or with weights computed from the parameters?)",
      fmt::join(not_captured, ", "), length_without_inverses()));
}

void Incidents::count(IncidentKind kind, std::int64_t times) {
  switch (kind) {
    case IncidentKind::kFactorNotFinite:
      counters_.nonfinite_factors += times;
      counters_.factor_updates -= times;
      return;
    case IncidentKind::kFactorAbsent:
      counters_.factor_updates -= times;
      return;
    case IncidentKind::kInverseFailed:
      counters_.inverse_retries += times;
      return;
    case IncidentKind::kInverseKept:
      counters_.inverses_kept += times;
      return;
    case IncidentKind::kLayerScaled:
      counters_.layers_scaled += times;
      return;
    case IncidentKind::kGradientNotFinite:
      counters_.nonfinite_gradients += times;
      return;
  }
}

std::string Incidents::subject_of(const Incident& incident) const {
  if (incident.note->factors.empty()) return "all layers";
  const Factor& factor = incident.note->factors[incident.index];
  const std::string& name = names_[factor.id.layer];
  if (incident.note->kind == IncidentKind::kLayerScaled) return name;
  return fmt::format("{} of {} (dimension {})", factor.id.side == FactorSide::kA ? "A" : "G", name,
                     factor.size);
}

const char* Incidents::length_without_inverses() const {
  if (options_.solver == Solver::kAdam) return "as a step of Adam";
  return options_.graft == Graft::kNone ? "scaled like those of other layers"
                                        : "with the length of a grafted step";
}

std::string Incidents::text_of(IncidentKind kind, std::int64_t step,
                               const std::string& subjects) const {
  switch (kind) {
    case IncidentKind::kFactorNotFinite:
      return fmt::format("factors with a NaN or an infinity were left out at step {}{}: {}", step,
                         place_, subjects);
    case IncidentKind::kFactorAbsent:
      return fmt::format("factors without examples at step {}{}: {}", step, place_, subjects);
    case IncidentKind::kInverseFailed:
      return fmt::format(
          "factors not positive definite with {} damping {} at step {}{} were damped more: {}",
          damping_names()[static_cast<std::size_t>(options_.damping_mode)], options_.damping, step,
          place_, subjects);
    case IncidentKind::kInverseKept:
      return fmt::format(
          "averages with a NaN or an infinity keep their previous inverse at step "
          "{}{}: {}",
          step, place_, subjects);
    case IncidentKind::kLayerScaled:
      return fmt::format("layers without inverses at step {}{} took their gradient, {}: {}", step,
                         place_, length_without_inverses(), subjects);
    case IncidentKind::kGradientNotFinite:
      return fmt::format(
          "a gradient has a NaN or an infinity at step {}; all gradients were set to zero for this "
          "step",
          step);
  }
  return subjects;
}

}  // namespace spdkfac::runtime
