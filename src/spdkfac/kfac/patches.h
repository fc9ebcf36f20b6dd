// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace spdkfac::kfac {

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

// The positions of a kernel: at (row, column) its corner meets the input at origin + stride·(row,
// column), which may lie outside, where there are zeros.
struct PatchGrid {
  std::array<std::int64_t, 2> origin{0, 0};
  std::array<std::int64_t, 2> size{0, 0};
};
// Those of the convolution itself.
PatchGrid output_grid(const at::Tensor& input, const ConvGeometry& conv);

// A part of a batch whose patches are held at once.
struct PatchChunk {
  std::int64_t example = 0;
  std::int64_t examples = 0;
  std::int64_t row = 0;  // of the grid
  std::int64_t rows = 0;
};

// Writes the patches of a chunk of `input` [N, C, H, W] to `patches` [groups, C/groups·kh·kw,
// columns], in (channel, kernel row, kernel column) order; columns are examples, rows and columns
// of the grid (padding is in its origin). Groups and rows may lie apart, columns may not. Where
// patches are copied by torch, not on the CPU, those of one group may also be [C, kh, kw, examples,
// rows, columns] with any strides.
void copy_patches(const at::Tensor& input, const ConvGeometry& conv, const PatchGrid& grid,
                  const PatchChunk& chunk, at::Tensor patches);

}  // namespace spdkfac::kfac
