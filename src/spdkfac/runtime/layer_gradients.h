// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace spdkfac::runtime {

// The gradients that travel with each layer, as one row of elements, and back.
class LayerGradients {
 public:
  // Of each layer, the parameters whose gradients its backward pass makes ready.
  explicit LayerGradients(std::vector<std::vector<at::Tensor>> parameters)
      : parameters_(std::move(parameters)) {}

  // How many gradients each layer has, and the elements of all those of one layer.
  std::vector<std::size_t> tensors() const;
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

}  // namespace spdkfac::runtime
