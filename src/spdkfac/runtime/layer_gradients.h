// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace spdkfac {

// The gradients that travel with each layer, as one row of elements, and back.
class LayerGradients {
 public:
  // Of each layer, the parameters whose gradients its backward pass makes ready.
  explicit LayerGradients(std::vector<std::vector<at::Tensor>> parameters)
      : parameters_(std::move(parameters)) {}

  std::size_t layers() const { return parameters_.size(); }
  std::size_t tensors(std::size_t layer) const { return parameters_[layer].size(); }
  std::int64_t elements(std::size_t layer) const;

  // Gradients that do not exist are sent as zeros.
  void write(std::size_t layer, const at::Tensor& row) const;
  // The row is scaled in place and becomes the gradients.
  void read(std::size_t layer, at::Tensor row, double scale) const;
  // Torch's version numbers, which show whether gradients were changed.
  std::vector<std::uint32_t> versions(std::size_t layer) const;

 private:
  std::vector<std::vector<at::Tensor>> parameters_;
};

}  // namespace spdkfac
