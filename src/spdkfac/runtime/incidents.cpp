// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/incidents.h"

#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

namespace spdkfac::runtime {

Incidents::Incidents(const std::vector<TrackedLayer>& layers, const KfacOptions& options,
                     std::shared_ptr<spdlog::logger> logger, std::string place)
    : damping_mode_(options.damping_mode),
      damping_(options.damping),
      logger_(std::move(logger)),
      place_(std::move(place)),
      not_captured_logged_(layers.size(), false) {
  for (const TrackedLayer& layer : layers) names_.push_back(layer.name);
}

void Incidents::averaged(const std::vector<Factor>& factors, const at::Tensor& finite) {
  counters_.factor_updates += static_cast<std::int64_t>(factors.size());
  note(IncidentKind::kFactorNotFinite, factors, finite.logical_not());
}

void Incidents::inverted(const std::vector<Factor>& factors, const at::Tensor& failures,
                         const at::Tensor& kept) {
  counters_.inverse_updates += static_cast<std::int64_t>(factors.size());
  std::vector<Factor> of_element;
  for (const Factor& factor : factors) {
    of_element.insert(of_element.end(), static_cast<std::size_t>(factor.groups), factor);
  }
  note(IncidentKind::kInverseFailed, of_element, failures);
  note(IncidentKind::kInverseKept, std::move(of_element), kept);
}

void Incidents::gradients(const at::Tensor& bad) {
  note(IncidentKind::kGradientNotFinite, {}, bad);
}

void Incidents::not_captured(std::size_t layer) {
  ++counters_.layers_without_factors;
  if (!logger_ || not_captured_logged_[layer]) return;
  not_captured_logged_[layer] = true;
  logger_->warn(
      "kfac: layer {} has a gradient, but no call of it was seen; its last inverses are used, if "
      "there are any (did the forward pass run on another thread or in evaluation mode?)",
      names_[layer]);
}

void Incidents::note(IncidentKind kind, std::vector<Factor> factors, const at::Tensor& flag) {
  take(log_.note(flag, {kind, std::move(factors), counters_.steps}));
}

void Incidents::take(const std::vector<Incident>& incidents) {
  for (const Incident& incident : incidents) {
    count(incident.note->kind, incident.times);
    if (!logger_ || !logged_.emplace(incident.note->kind, subject_of(incident)).second) continue;
    logger_->warn("kfac: {}; further occurrences are only counted", text_of(incident));
  }
}

void Incidents::count(IncidentKind kind, std::int64_t times) {
  switch (kind) {
    case IncidentKind::kFactorNotFinite:
      counters_.nonfinite_factors += times;
      counters_.factor_updates -= times;
      return;
    case IncidentKind::kInverseFailed:
      counters_.inverse_retries += times;
      return;
    case IncidentKind::kInverseKept:
      counters_.inverses_kept += times;
      return;
    case IncidentKind::kGradientNotFinite:
      counters_.nonfinite_gradients += times;
      return;
  }
}

std::string Incidents::subject_of(const Incident& incident) const {
  if (incident.note->factors.empty()) return "a gradient";
  const Factor& factor = incident.note->factors[incident.index];
  return fmt::format("factor {} of layer {} (dimension {})",
                     factor.id.side == FactorSide::kA ? "A" : "G", names_[factor.id.layer],
                     factor.dim);
}

std::string Incidents::text_of(const Incident& incident) const {
  const std::string subject = subject_of(incident);
  const std::int64_t step = incident.note->step;
  switch (incident.note->kind) {
    case IncidentKind::kFactorNotFinite:
      return fmt::format("{} has a NaN or an infinity and was left out at step {}{}", subject, step,
                         place_);
    case IncidentKind::kInverseFailed:
      return fmt::format(
          "{} could not be inverted with {} damping {} at step {}{} and is tried with ten times as "
          "much",
          subject, damping_names()[static_cast<std::size_t>(damping_mode_)], damping_, step,
          place_);
    case IncidentKind::kInverseKept:
      return fmt::format("{} keeps its previous inverse at step {}{}", subject, step, place_);
    case IncidentKind::kGradientNotFinite:
      return fmt::format(
          "{} has a NaN or an infinity at step {}; all gradients were set to zero for this step",
          subject, step);
  }
  return subject;
}

}  // namespace spdkfac::runtime
