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
  for (const std::vector<at::Tensor>& layer : parameters_) tensors.push_back(layer.size());
  return tensors;
}

std::int64_t LayerGradients::elements(std::size_t layer) const {
  std::int64_t elements = 0;
  for (const at::Tensor& parameter : parameters_[layer]) elements += parameter.numel();
  return elements;
}

bool LayerGradients::contains(const at::Tensor& tensor) const {
  for (const std::vector<at::Tensor>& layer : parameters_) {
    for (const at::Tensor& parameter : layer) {
      if (parameter.is_same(tensor)) return true;
    }
  }
  return false;
}

void LayerGradients::write(std::size_t layer, const at::Tensor& row) const {
  std::int64_t offset = 0;
  for (const at::Tensor& parameter : parameters_[layer]) {
    const at::Tensor part = row.narrow(0, offset, parameter.numel());
    const at::Tensor& gradient = parameter.grad();
    if (gradient.defined()) {
      part.view(parameter.sizes()).copy_(gradient);
    } else {
      part.zero_();
    }
    offset += parameter.numel();
  }
}

void LayerGradients::read(std::size_t layer, at::Tensor row, double scale) const {
  if (scale != 1) row.mul_(scale);
  std::int64_t offset = 0;
  for (const at::Tensor& parameter : parameters_[layer]) {
    const at::Tensor part = row.narrow(0, offset, parameter.numel()).view(parameter.sizes());
    offset += parameter.numel();
    if (!parameter.requires_grad()) continue;
    if (!parameter.grad().defined()) parameter.mutable_grad() = at::empty_like(parameter);
    parameter.mutable_grad().copy_(part);
  }
}

std::vector<GradientMark> LayerGradients::marks(std::size_t layer) const {
  std::vector<GradientMark> marks;
  for (const at::Tensor& parameter : parameters_[layer]) marks.emplace_back(parameter.grad());
  return marks;
}

}  // namespace spdkfac::runtime
