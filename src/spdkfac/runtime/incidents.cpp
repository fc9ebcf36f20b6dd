// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/incidents.h"

#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

namespace spdkfac {
namespace {

constexpr const char* kOnlyOnce = "further occurrences are only counted";

}  // namespace

Incidents::Incidents(const std::vector<TrackedLayer>& layers, const KfacOptions& options,
                     std::shared_ptr<spdlog::logger> logger, std::string place)
    : damping_mode_(options.damping_mode),
      damping_(options.damping),
      logger_(std::move(logger)),
      place_(std::move(place)),
      log_(logger_),
      not_captured_logged_(layers.size(), false) {
  for (const TrackedLayer& layer : layers) names_.push_back(layer.name);
}

std::string Incidents::text_of(const Factor& factor) const {
  return fmt::format("factor {} of layer {} (dimension {})",
                     factor.id.side == FactorSide::kA ? "A" : "G", names_[factor.id.layer],
                     factor.dim);
}

void Incidents::averaged(const std::vector<Factor>& factors, const at::Tensor& finite) {
  counters_.factor_updates += static_cast<std::int64_t>(factors.size());
  log_.note(
      finite.logical_not(),
      [this, factors, step = counters_.steps](std::size_t index) {
        const std::string text = text_of(factors[index]);
        return IncidentLog::Message{
            fmt::format("factor {}", text),
            fmt::format("kfac: {} has a NaN or an infinity and was left out at step {}{}; {}", text,
                        step, place_, kOnlyOnce)};
      },
      [this](std::int64_t times) {
        counters_.nonfinite_factors += times;
        counters_.factor_updates -= times;
      });
}

void Incidents::inverted(const std::vector<Factor>& factors, const at::Tensor& failures,
                         const at::Tensor& kept) {
  counters_.inverse_updates += static_cast<std::int64_t>(factors.size());
  std::vector<Factor> of_element;
  for (const Factor& factor : factors) {
    of_element.insert(of_element.end(), static_cast<std::size_t>(factor.groups), factor);
  }
  log_.note(
      failures,
      [this, of_element, step = counters_.steps](std::size_t index) {
        const std::string text = text_of(of_element[index]);
        return IncidentLog::Message{
            fmt::format("inverse {}", text),
            fmt::format("kfac: {} could not be inverted with {} damping {} at step {}{} and is "
                        "tried with ten times as much; {}",
                        text, damping_names()[static_cast<std::size_t>(damping_mode_)], damping_,
                        step, place_, kOnlyOnce)};
      },
      [this](std::int64_t times) { counters_.inverse_retries += times; });
  log_.note(
      kept,
      [this, of_element, step = counters_.steps](std::size_t index) {
        const std::string text = text_of(of_element[index]);
        return IncidentLog::Message{
            fmt::format("inverse {} kept", text),
            fmt::format("kfac: {} keeps its previous inverse at step {}{}; {}", text, step, place_,
                        kOnlyOnce)};
      },
      [this](std::int64_t times) { counters_.inverses_kept += times; });
}

void Incidents::not_captured(std::size_t layer) {
  ++counters_.layers_without_factors;
  if (!logger_ || not_captured_logged_[layer]) return;
  not_captured_logged_[layer] = true;
  logger_->warn(
      "kfac: layer {} has a gradient, but no call of it was seen; its last inverses are used if "
      "there are any (was the forward pass on another thread, or in evaluation mode?)",
      names_[layer]);
}

void Incidents::gradients(const at::Tensor& bad) {
  log_.note(
      bad,
      [step = counters_.steps](std::size_t) {
        return IncidentLog::Message{
            "gradient",
            fmt::format("kfac: a gradient has a NaN or an infinity at step {}; all gradients were "
                        "set to zero for this step; {}",
                        step, kOnlyOnce)};
      },
      [this](std::int64_t times) { counters_.nonfinite_gradients += times; });
}

}  // namespace spdkfac
