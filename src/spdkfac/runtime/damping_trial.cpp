// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/damping_trial.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ATen.h>

namespace spdkfac::runtime {
namespace {

constexpr double kLeastDamping = 1e-10;
constexpr double kMostDamping = 1e10;

double inner_of(const at::Tensor& left, const at::Tensor& right) {
  return (left.to(at::kDouble) * right.to(at::kDouble)).sum().item<double>();
}

std::vector<at::Tensor> copies(const std::vector<ParameterPart>& parts) {
  std::vector<at::Tensor> result;
  for (const ParameterPart& part : parts) result.push_back(part.of(part.parameter).clone());
  return result;
}

at::Tensor update_of(const ParameterPart& part, const at::Tensor& before) {
  return part.of(part.parameter) - before;
}

}  // namespace

DampingTrial::DampingTrial(std::vector<ClippedLayer> layers, const Clipped& clipped,
                           std::vector<ParameterPart> others)
    : layers_(std::move(layers)),
      slopes_(clipped.slopes),
      curvatures_(clipped.curvatures),
      others_(std::move(others)),
      others_before_(copies(others_)) {
  for (const ClippedLayer& layer : layers_) before_.push_back(copies(layer.parameters));
}

double DampingTrial::predicted() const {
  const at::Tensor slopes = slopes_.cpu();
  const at::Tensor curvatures = curvatures_.cpu();
  double sum = 0;
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    double along = 0;   // ⟨δ, V⟩
    double square = 0;  // ‖V‖²
    for (std::size_t i = 0; i < before_[layer].size(); ++i) {
      const ParameterPart& part = layers_[layer].parameters[i];
      const at::Tensor gradient = part.gradient();
      if (!gradient.defined()) continue;
      along += inner_of(update_of(part, before_[layer][i]), gradient);
      square += inner_of(gradient, gradient);
    }
    if (square == 0) continue;
    const double part = along / square;
    const auto index = static_cast<std::int64_t>(layer);
    sum +=
        part * slopes[index].item<double>() + 0.5 * part * part * curvatures[index].item<double>();
  }
  for (std::size_t i = 0; i < others_.size(); ++i) {
    const at::Tensor gradient = others_[i].gradient();
    if (gradient.defined()) sum += inner_of(update_of(others_[i], others_before_[i]), gradient);
  }
  return sum;
}

double damping_after(double damping, double change, double predicted) {
  const double factor = std::pow(0.9, DampingTrial::kInterval);
  const double rho = change / predicted;
  if (predicted == 0 && change == 0) return damping;
  if (rho > 0.75) return std::max(damping * factor, kLeastDamping);
  if (rho >= 0.25) return damping;
  return std::min(damping / factor, kMostDamping);  // also for a NaN
}

}  // namespace spdkfac::runtime
