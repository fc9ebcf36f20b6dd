// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include "spdkfac/runtime/tracked_layer.h"

namespace spdkfac::runtime {

// Which tensor a gradient is, and torch's count of the changes made to it. The weak reference keeps
// the address from being used again; it does not keep the numbers.
class GradientMark {
 public:
  explicit GradientMark(const at::Tensor& gradient);
  bool operator==(const GradientMark& other) const;

 private:
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor_;
  const void* data_ = nullptr;
  std::int64_t version_ = 0;
};

// The gradients that travel with each layer, as one row of elements, and back.
class LayerGradients {
 public:
  // Of each layer, the parameters whose gradients its backward pass makes ready.
  explicit LayerGradients(std::vector<std::vector<ParameterPart>> parameters)
      : parameters_(std::move(parameters)) {}

  // How many gradients each layer has, and the elements of all those of one layer.
  std::vector<std::size_t> tensors() const;
  std::int64_t elements(std::size_t layer) const;

  // Whether the tensor is one of these parameters.
  bool contains(const at::Tensor& tensor) const;

  // Gradients that do not exist are sent as zeros.
  void write(std::size_t layer, const at::Tensor& row) const;
  // The row is scaled in place and becomes the gradients.
  void read(std::size_t layer, at::Tensor row, double scale) const;
  // Differ from earlier ones when a gradient was changed, replaced or dropped.
  std::vector<GradientMark> marks(std::size_t layer) const;

 private:
  std::vector<std::vector<ParameterPart>> parameters_;
};

}  // namespace spdkfac::runtime
