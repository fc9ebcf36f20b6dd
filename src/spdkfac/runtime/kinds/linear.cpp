// SPDX-License-Identifier: Apache-2.0
// Linear layers: products of an input with a weight [out, in], or [in, out].
#include <algorithm>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include "spdkfac/runtime/capture_registry.h"
#include "spdkfac/runtime/kinds/kind.h"

namespace spdkfac::runtime {
namespace {

const std::vector<CoveredKind>& kinds_of_products() {
  static const std::vector<CoveredKind> kinds = {
      {LayerKind::kLinear, kfac::WeightLayout::kOutIn},
      {LayerKind::kLinearInOut, kfac::WeightLayout::kInOut}};
  return kinds;
}

std::vector<TrackedLayer> linear_layers(const torch::nn::Module& module) {
  const auto* linear = module.as<torch::nn::LinearImpl>();
  if (linear == nullptr) return {};
  return {{.name = "", .weight = linear->weight, .bias = linear->bias, .kind = LayerKind::kLinear}};
}

// The rows of a layer's whole weight, seen as [out, in], that `matrix` is; none if it is no such
// view of the weight.
std::optional<OutputRange> rows_of(const at::Tensor& matrix, const TrackedLayer& layer) {
  const at::Tensor& weight = layer.weight;
  if (weight.dim() != 2 || matrix.dim() != 2) return std::nullopt;
  const bool out_in = layer.kind == LayerKind::kLinear;
  const std::int64_t out = out_in ? 0 : 1;
  const std::int64_t in = 1 - out;
  if (matrix.size(1) != weight.size(in) || matrix.stride(0) != weight.stride(out) ||
      matrix.stride(1) != weight.stride(in)) {
    return std::nullopt;
  }
  const std::int64_t offset = matrix.storage_offset() - weight.storage_offset();
  const std::int64_t step = std::max<std::int64_t>(1, weight.stride(out));
  const std::int64_t first = offset / step;
  if (offset < 0 || offset % step != 0 || first + matrix.size(0) > weight.size(out)) {
    return std::nullopt;
  }
  return OutputRange{first, matrix.size(0)};
}

// `matrix` [out, in]: what the input was multiplied with, transposed.
void observe_product(const at::Tensor& input, const at::Tensor& used, const at::Tensor& matrix,
                     const at::Tensor& output, bool of_others) {
  const auto match = [&](const TrackedLayer& layer) -> std::optional<LayerCall> {
    const LayerKind kind = layer.kind;
    if (kind != LayerKind::kLinear && kind != LayerKind::kLinearInOut) return std::nullopt;
    const std::optional<OutputRange> rows = rows_of(matrix, layer);
    if (!rows) return std::nullopt;
    const OutputRange own =
        layer.outputs.all() ? OutputRange{0, layer.all_outputs()} : layer.outputs;
    if (own.first < rows->first || own.first + own.count > rows->first + rows->count) {
      return std::nullopt;
    }
    LayerCall call{.input = input};
    if (own.count < rows->count) call.outputs = {own.first - rows->first, own.count};
    return call;
  };
  observe({input, used, output, /*convolution=*/false, of_others}, match);
}

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias) {
  const CaptureOff off;
  at::Tensor output = at::linear(input, weight, bias);
  observe_product(input, weight, weight, output, true);
  return output;
}

// transformers' Conv1D makes one matrix of its input; the tensor that it was given says how many
// examples there are.
at::Tensor before_flattening(const at::Tensor& rows) {
  if (rows.dim() != 2 || !rows.is_view()) return rows;
  const at::Tensor base(rows._base());
  const bool flattened = base.dim() > 2 && base.size(-1) == rows.size(1) &&
                         base.numel() == rows.numel() && base.is_contiguous() &&
                         rows.is_contiguous();
  return flattened ? base : rows;
}

void observe_factor(const at::Tensor& input, const at::Tensor& factor, const at::Tensor& output) {
  if (factor.dim() == 2 && is_watched(factor)) {
    observe_product(before_flattening(input), factor, factor.detach().t(), output,
                    /*of_others=*/factor.is_view());
  }
}

at::Tensor addmm(const at::Tensor& self, const at::Tensor& input, const at::Tensor& factor,
                 const at::Scalar& beta, const at::Scalar& alpha) {
  const CaptureOff off;
  at::Tensor output = at::addmm(self, input, factor, beta, alpha);
  // Other multiples are no Linear layer: its gradient is that of the product.
  if (alpha.equal(1)) observe_factor(input, factor, output);
  return output;
}

at::Tensor mm(const at::Tensor& input, const at::Tensor& factor) {
  const CaptureOff off;
  at::Tensor output = at::mm(input, factor);
  observe_factor(input, factor, output);
  return output;
}

at::Tensor matmul(const at::Tensor& input, const at::Tensor& factor) {
  const CaptureOff off;
  at::Tensor output = at::matmul(input, factor);
  observe_factor(input, factor, output);
  return output;
}

void install_products(torch::Library& operators) {
  operators.impl("linear", linear);
  operators.impl("addmm", addmm);
  operators.impl("mm", mm);
  operators.impl("matmul", matmul);
}

}  // namespace

KindFile linear_kinds() { return {kinds_of_products(), linear_layers, install_products}; }

}  // namespace spdkfac::runtime
