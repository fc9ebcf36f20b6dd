// SPDX-License-Identifier: Apache-2.0
// Tables: an output row is a row of the weight [rows, features]. A is the diagonal of counts.
#include <ATen/ATen.h>
#include <torch/nn/modules/embedding.h>

#include "spdkfac/runtime/capture_registry.h"
#include "spdkfac/runtime/kinds/kind.h"

namespace spdkfac::runtime {
namespace {

// Rows that are scaled by how often they occur, or bounded, are no linear layer; gradients that are
// sparse cannot be multiplied.
std::vector<TrackedLayer> embedding_layers(const torch::nn::Module& module) {
  const auto* table = module.as<torch::nn::EmbeddingImpl>();
  if (table == nullptr || table->options.sparse() || table->options.scale_grad_by_freq() ||
      table->options.max_norm()) {
    return {};
  }
  return {{.name = "", .weight = table->weight, .kind = LayerKind::kEmbedding}};
}

at::Tensor embedding(const at::Tensor& weight, const at::Tensor& indices, c10::SymInt padding,
                     bool scale_grad_by_freq, bool sparse) {
  const CaptureOff off;
  at::Tensor output = at::embedding_symint(weight, indices, padding, scale_grad_by_freq, sparse);
  const auto match = [&](const TrackedLayer& layer) -> std::optional<LayerCall> {
    if (layer.kind != LayerKind::kEmbedding || !layer.weight.is_same(weight)) return std::nullopt;
    return LayerCall{.input = indices, .padding = padding.expect_int()};
  };
  observe({indices, weight, output, /*convolution=*/false, /*of_others=*/false}, match);
  return output;
}

}  // namespace

KindFile embedding_kinds() {
  return {
      {{.kind = LayerKind::kEmbedding, .layout = kfac::WeightLayout::kInOut, .diagonal_a = true}},
      embedding_layers,
      [](torch::Library& operators) { operators.impl("embedding", embedding); }};
}

}  // namespace spdkfac::runtime
