// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/graft.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <ATen/ATen.h>

#include "spdkfac/base/check.h"
#include "spdkfac/kfac/layer_lengths.h"
#include "spdkfac/kfac/precondition.h"

namespace spdkfac::kfac {
namespace {

// Tensors that one group of kernels takes, so that what lies between them stays small.
constexpr std::size_t kTogether = 32;

// All tensors of the layers side by side.
struct Flat {
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> first;
  std::vector<at::Tensor> second;
  std::vector<std::size_t> layer_of;
};

// The parts of a layer's moments that belong to its gradients.
std::vector<at::Tensor> parts_of(const at::Tensor& moment,
                                 const std::vector<at::Tensor>& gradients) {
  const at::Tensor& weight = gradients.front();
  const std::int64_t rows = weight.dim() > 0 ? weight.size(0) : 1;
  std::vector<at::Tensor> parts;
  if (moment.numel() == weight.numel() + rows &&
      (gradients.size() == 1 || gradients[1].numel() == rows)) {
    const at::Tensor matrix = moment.view({rows, -1});
    const std::int64_t columns = matrix.size(1) - 1;
    parts.push_back(matrix.narrow(1, 0, columns).view(weight.sizes()));
    if (gradients.size() > 1) parts.push_back(matrix.select(1, columns).view(gradients[1].sizes()));
    return parts;
  }
  std::int64_t at = 0;
  for (const at::Tensor& gradient : gradients) {
    parts.push_back(moment.narrow(0, at, gradient.numel()).view(gradient.sizes()));
    at += gradient.numel();
  }
  return parts;
}

void append(std::vector<at::Tensor>& to, const std::vector<at::Tensor>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

Flat flat(const std::vector<GraftedLayer>& layers) {
  Flat result;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const auto& [gradients, moments] = layers[layer];
    if (gradients.empty()) continue;
    append(result.gradients, gradients);
    result.layer_of.insert(result.layer_of.end(), gradients.size(), layer);
    if (moments == nullptr) continue;
    append(result.first, parts_of(moments->first, gradients));
    append(result.second, parts_of(moments->second, gradients));
  }
  return result;
}

at::Tensor squares(const std::vector<at::Tensor>& tensors, const std::vector<std::size_t>& layer_of,
                   std::size_t layers) {
  return squares_by_layer(lengths_of(tensors), layer_of, layers, tensors.front().device());
}

void fill_if(const std::vector<at::Tensor>& tensors, const at::Tensor& condition, double value) {
  if (condition.is_cpu() && !condition.item<bool>()) return;
  for (const at::Tensor& one : tensors) one.masked_fill_(condition, value);
}

std::vector<at::Tensor> range(const std::vector<at::Tensor>& tensors, std::size_t begin,
                              std::size_t end) {
  return {tensors.begin() + static_cast<std::ptrdiff_t>(begin),
          tensors.begin() + static_cast<std::ptrdiff_t>(end)};
}

// In the type of the moments, which is wider than half precision.
std::vector<at::Tensor> widened(const std::vector<at::Tensor>& tensors,
                                const std::vector<at::Tensor>& like) {
  std::vector<at::Tensor> wide;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    wide.push_back(tensors[i].to(like[i].scalar_type()));
  }
  return wide;
}

}  // namespace

AdamMoments::AdamMoments(std::int64_t elements, const at::TensorOptions& options)
    : first(at::zeros({elements}, options)),
      second(at::zeros({elements}, options)),
      steps(at::zeros({}, options.dtype(at::kDouble))) {}

at::Tensor gradient_lengths(const std::vector<GraftedLayer>& layers) {
  const Flat all = flat(layers);
  return squares(all.gradients, all.layer_of, layers.size()).sqrt();
}

at::Tensor adam_lengths(const std::vector<GraftedLayer>& layers, const AdamOptions& options) {
  const Flat all = flat(layers);
  SPDKFAC_CHECK(all.first.size() == all.gradients.size(), "a grafted layer without moments");
  const at::Tensor bad =
      squares(all.gradients, all.layer_of, layers.size()).isfinite().all().logical_not();
  fill_if(all.gradients, bad, 0);
  std::vector<at::Tensor> lengths;
  for (std::size_t begin = 0; begin < all.gradients.size(); begin += kTogether) {
    const std::size_t end = std::min(begin + kTogether, all.gradients.size());
    std::vector<at::Tensor> first = range(all.first, begin, end);
    std::vector<at::Tensor> second = range(all.second, begin, end);
    std::vector<at::Tensor> own = range(all.gradients, begin, end);
    const std::vector<at::Tensor> gradients = widened(own, first);
    at::_foreach_mul_(first, options.beta1);
    at::_foreach_add_(first, gradients, 1 - options.beta1);
    at::_foreach_mul_(second, options.beta2);
    at::_foreach_addcmul_(second, gradients, gradients, 1 - options.beta2);
    std::vector<at::Tensor> steps = at::_foreach_sqrt(second);
    at::_foreach_add_(steps, options.epsilon);
    for (at::Tensor& one : lengths_of(at::_foreach_div(first, steps))) {
      lengths.push_back(std::move(one));
    }
    at::_foreach_copy_(own, first);
  }
  fill_if(all.gradients, bad, std::numeric_limits<double>::quiet_NaN());
  const at::Tensor squared =
      squares_by_layer(lengths, all.layer_of, layers.size(), all.gradients.front().device());
  std::vector<at::Tensor> steps;
  for (const GraftedLayer& layer : layers) steps.push_back(layer.moments->steps);
  return squared.sqrt() * next_corrections(std::move(steps), options);
}

at::Tensor next_corrections(std::vector<at::Tensor> steps, const AdamOptions& options) {
  at::_foreach_add_(steps, 1);
  const at::Tensor all = at::stack(steps);
  return (1 - at::pow(options.beta2, all)).sqrt() / (1 - at::pow(options.beta1, all));
}

at::Tensor graft_lengths(const std::vector<GraftedLayer>& layers, const GraftRule& rule) {
  SPDKFAC_CHECK(rule.method != Graft::kNone, "nothing to graft");
  return rule.method == Graft::kAdam ? adam_lengths(layers, rule.adam) : gradient_lengths(layers);
}

void set_lengths(const std::vector<GraftedLayer>& layers, const at::Tensor& lengths) {
  const Flat all = flat(layers);
  const at::Tensor own = squares(all.gradients, all.layer_of, layers.size()).sqrt();
  // NaN stays NaN, so that clipping sees it.
  const at::Tensor scales = at::where(own == 0, at::ones_like(own), lengths / own);
  std::vector<at::Tensor> of_tensors;
  const std::vector<at::Tensor> of_layers = scales.unbind();
  for (const std::size_t layer : all.layer_of) of_tensors.push_back(of_layers[layer]);
  scale_or_clear(all.gradients, {}, at::stack(of_tensors),
                 at::zeros({}, own.options().dtype(at::kBool)));
}

}  // namespace spdkfac::kfac
