// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/plan.h"

#include <fmt/format.h>

#include "spdkfac/base/check.h"

namespace spdkfac {
namespace {

// FNV-1a, 64 bits: stable across compilers and machines, which std::hash is not.
std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  }
  return hash;
}

}  // namespace

MemberSize member_size(const LayerSpec& layer, TensorKind kind) {
  switch (kind) {
    case TensorKind::kFactorA:
      return {packed_elements(layer.d_a), 1};
    case TensorKind::kFactorG:
      return {packed_elements(layer.d_g), 1};
    case TensorKind::kGradient:
      return {layer.gradient_elements(), static_cast<std::int64_t>(layer.gradients.size())};
    case TensorKind::kTrace:
      return {2, 1};
  }
  SPDKFAC_CHECK(false, "unknown TensorKind");
}

std::vector<ExchangeStep> exchange_steps(const Plan& plan, const ModelSpec& model) {
  std::vector<ExchangeStep> steps;
  std::vector<bool> half_done(model.layers.size(), false);
  for (std::size_t i = 0; i < plan.factors.size(); ++i) {
    const FactorPlacement& factor = plan.factors[i];
    if (!factor.owner) continue;
    if (!factor.sends_gradient) {
      if (plan.step == StepKind::kFull) {
        steps.push_back({i, i, *factor.owner, false, packed_elements(factor.dim), 1});
      }
      continue;
    }
    const auto layer = static_cast<std::size_t>(factor.layer);
    half_done[layer] = !half_done[layer];
    const bool joins = !steps.empty() && steps.back().gradients && steps.back().last + 1 == i &&
                       steps.back().root == *factor.owner;
    if (!joins) steps.push_back({i, i, *factor.owner, true, 0, 0});
    steps.back().last = i;
    if (!half_done[layer]) {  // this was its second factor
      const MemberSize size = member_size(model.layers[layer], TensorKind::kGradient);
      steps.back().elements += size.elements + kInnerElements;
      steps.back().tensors += size.tensors;
    }
  }
  return steps;
}

std::vector<bool> layers_sending_gradient(const Plan& plan, std::size_t layers) {
  std::vector<bool> sends(layers, false);
  for (const FactorPlacement& factor : plan.factors) {
    if (factor.sends_gradient) sends[static_cast<std::size_t>(factor.layer)] = true;
  }
  return sends;
}

std::string Plan::digest() const {
  Json document = to_json(*this);
  document.erase("predicted");
  return fmt::format("{:016x}", fnv1a(document.dump()));
}

}  // namespace spdkfac
