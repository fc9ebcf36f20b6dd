// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace spdkfac {

// How a convolution was called.
struct ConvGeometry {
  std::array<std::int64_t, 2> kernel{1, 1};
  std::array<std::int64_t, 2> stride{1, 1};
  std::array<std::int64_t, 2> padding{0, 0};
  std::array<std::int64_t, 2> dilation{1, 1};
  std::int64_t groups = 1;
  bool operator==(const ConvGeometry&) const = default;
};

// Rows and columns of the output for an input [N, C, H, W]; none at all is an InternalError.
std::array<std::int64_t, 2> output_size(const at::Tensor& input, const ConvGeometry& conv);

// A part of a batch whose patches are held at once.
struct PatchChunk {
  std::int64_t example = 0;
  std::int64_t examples = 0;
  std::int64_t row = 0;  // of the output
  std::int64_t rows = 0;
};

// Writes the patches of a chunk of `input` [N, C, H, W] to `patches` [groups, C/groups·kh·kw,
// columns], in (channel, kernel row, kernel column) order; columns are examples, output rows and
// output columns. Groups and rows may lie apart, columns may not.
void copy_patches(const at::Tensor& input, const ConvGeometry& conv, const PatchChunk& chunk,
                  at::Tensor patches);

}  // namespace spdkfac
