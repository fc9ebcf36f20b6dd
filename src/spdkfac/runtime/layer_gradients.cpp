// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/layer_gradients.h"

#include <ATen/ATen.h>

namespace spdkfac::runtime {

GradientMark::GradientMark(const at::Tensor& gradient) : tensor_(gradient.getIntrusivePtr()) {
  if (!gradient.defined()) return;
  data_ = gradient.const_data_ptr();
  version_ = gradient._version();
}

bool GradientMark::operator==(const GradientMark& other) const {
  return tensor_ == other.tensor_ && data_ == other.data_ && version_ == other.version_;
}

std::vector<std::size_t> LayerGradients::tensors() const {
  std::vector<std::size_t> tensors;
  for (const std::vector<ParameterPart>& layer : parameters_) tensors.push_back(layer.size());
  return tensors;
}

std::int64_t LayerGradients::elements(std::size_t layer) const {
  std::int64_t elements = 0;
  for (const ParameterPart& parameter : parameters_[layer]) elements += parameter.numel();
  return elements;
}

bool LayerGradients::contains(const at::Tensor& tensor) const {
  for (const std::vector<ParameterPart>& layer : parameters_) {
    for (const ParameterPart& parameter : layer) {
      if (parameter.parameter.is_same(tensor)) return true;
    }
  }
  return false;
}

void LayerGradients::write(std::size_t layer, const at::Tensor& row) const {
  std::int64_t offset = 0;
  for (const ParameterPart& parameter : parameters_[layer]) {
    const std::int64_t count = parameter.numel();
    const at::Tensor part = row.narrow(0, offset, count);
    const at::Tensor gradient = parameter.gradient();
    if (gradient.defined()) {
      part.view(gradient.sizes()).copy_(gradient);
    } else {
      part.zero_();
    }
    offset += count;
  }
}

void LayerGradients::read(std::size_t layer, at::Tensor row, double scale) const {
  if (scale != 1) row.mul_(scale);
  std::int64_t offset = 0;
  for (const ParameterPart& parameter : parameters_[layer]) {
    const std::int64_t count = parameter.numel();
    const at::Tensor part = row.narrow(0, offset, count).view(parameter.sizes());
    offset += count;
    const at::Tensor& whole = parameter.parameter;
    if (!whole.requires_grad()) continue;
    if (!whole.grad().defined()) whole.mutable_grad() = at::zeros_like(whole);
    parameter.gradient().copy_(part);
  }
}

std::vector<GradientMark> LayerGradients::marks(std::size_t layer) const {
  std::vector<GradientMark> marks;
  for (const ParameterPart& parameter : parameters_[layer])
    marks.emplace_back(parameter.parameter.grad());
  return marks;
}

}  // namespace spdkfac::runtime
