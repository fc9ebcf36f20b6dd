// SPDX-License-Identifier: Apache-2.0
// The projections of queries, keys and values inside MultiheadAttention; its output projection is a
// Linear module. Their calls are those of Linear layers, with all rows of in_proj_weight or some.
#include <array>

#include <torch/nn/modules/activation.h>

#include "spdkfac/runtime/kinds/kind.h"

namespace spdkfac::runtime {
namespace {

std::vector<TrackedLayer> attention_layers(const torch::nn::Module& module) {
  const auto* attention = module.as<torch::nn::MultiheadAttentionImpl>();
  if (attention == nullptr) return {};
  const bool fused = attention->in_proj_weight.defined();
  const std::array<at::Tensor, 3> own = {attention->q_proj_weight, attention->k_proj_weight,
                                         attention->v_proj_weight};
  const std::array<const char*, 3> names = {"q_proj", "k_proj", "v_proj"};
  const std::int64_t size = attention->options.embed_dim();
  std::vector<TrackedLayer> layers;
  for (std::size_t part = 0; part < names.size(); ++part) {
    const OutputRange range{static_cast<std::int64_t>(part) * size, size};
    layers.push_back({.name = names[part],
                      .weight = fused ? attention->in_proj_weight : own[part],
                      .bias = attention->in_proj_bias,
                      .kind = LayerKind::kLinear,
                      .outputs = fused ? range : OutputRange{},
                      .bias_outputs = range});
  }
  return layers;
}

}  // namespace

KindFile attention_kinds() { return {{}, attention_layers, nullptr}; }

}  // namespace spdkfac::runtime
