// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spdkfac/base/units.h"
#include "spdkfac/kfac/patches.h"

namespace spdkfac::kfac {

// How a convolution of one to three dimensions was called, also a transposed one. The axes are
// depth, rows, columns; one that the convolution does not have is a point.
struct ConvCall {
  using Axes = std::array<std::int64_t, 3>;

  ConvCall() = default;
  ConvCall(const ConvGeometry& plane);  // two dimensions are the usual case

  std::int64_t dimensions = 2;
  Axes kernel{1, 1, 1};
  Axes stride{1, 1, 1};
  Axes padding{0, 0, 0};
  Axes dilation{1, 1, 1};
  Axes output_padding{0, 0, 0};  // of a transposed one
  std::int64_t groups = 1;
  bool transposed = false;
  bool operator==(const ConvCall&) const = default;

  std::int64_t kernel_size() const { return kernel[0] * kernel[1] * kernel[2]; }
};

// [N, C, …] also of a single example [C, …].
at::Tensor with_examples(const at::Tensor& input, const ConvCall& call);

// Positions of the output for an input [N, C, …]; none at all is an InternalError.
std::int64_t output_positions(const at::Tensor& input, const ConvCall& call);

// The mean of each example's patches over the positions of the output, [N, C, kernel…] in the order
// of the weight.
at::Tensor mean_patches(const at::Tensor& input, const ConvCall& call);

// The same patches as those of convolutions of planes: images [N', C', H, W] for `plane`, whose
// patches are those of the call in (channel, depth, row, column) order of its weight, each position
// once, in any order. The input comes in parts whose images take about `memory`.
struct PlaneConvolution {
  ConvGeometry plane;
  std::vector<at::Tensor> parts;  // of the input, along the examples

  // Of one part.
  at::Tensor images(std::size_t part) const;

  ConvCall call;
};
PlaneConvolution as_planes(const at::Tensor& input, const ConvCall& call, Bytes memory);

// [N, C, …] as images [N, C, H, W] with the same positions.
at::Tensor as_images(const at::Tensor& tensor);

}  // namespace spdkfac::kfac
