// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/patches.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "spdkfac/base/check.h"

namespace spdkfac::kfac {
namespace {

// Elements that are worth a thread of their own.
constexpr std::int64_t kPatchGrain = 1 << 14;

// Part of an output axis whose inputs lie inside the image, for one place of the kernel.
struct Inside {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t first = 0;  // input of `begin`
};

Inside inside(std::int64_t outputs, std::int64_t offset, std::int64_t stride, std::int64_t size) {
  Inside part;
  part.begin = std::min(outputs, offset < 0 ? (-offset + stride - 1) / stride : 0);
  part.end = offset < size ? std::min(outputs, (size - 1 - offset) / stride + 1) : 0;
  part.end = std::max(part.begin, part.end);
  part.first = part.begin * stride + offset;
  return part;
}

template <class Scalar>
void copy_row(const Scalar* from, std::int64_t stride, const Inside& part, std::int64_t outputs,
              Scalar* to) {
  std::fill(to, to + part.begin, Scalar(0));
  if (stride == 1) {
    std::copy_n(from + part.first, part.end - part.begin, to + part.begin);
  } else {
    for (std::int64_t output = part.begin; output < part.end; ++output) {
      to[output] = from[part.first + (output - part.begin) * stride];
    }
  }
  std::fill(to + part.end, to + outputs, Scalar(0));
}

// Padding is written as it is met, so that no padded copy of the input is made.
template <class Scalar>
void copy_on_cpu(const at::Tensor& examples, const ConvGeometry& conv, const PatchGrid& grid,
                 const PatchChunk& chunk, const at::Tensor& patches) {
  const std::int64_t output_columns = grid.size[1];
  const auto [kernel_rows, kernel_columns] = conv.kernel;
  const std::int64_t channels = examples.size(1);
  const std::int64_t height = examples.size(2);
  const std::int64_t width = examples.size(3);
  const std::int64_t group_rows = patches.size(1);
  const Scalar* const from = examples.const_data_ptr<Scalar>();
  Scalar* const to = patches.mutable_data_ptr<Scalar>();
  // Whole output rows in one piece, where the kernel is a point that meets every pixel.
  const bool plain = conv.kernel == std::array<std::int64_t, 2>{1, 1} &&
                     conv.stride == std::array<std::int64_t, 2>{1, 1} &&
                     grid.origin == std::array<std::int64_t, 2>{0, 0} && output_columns == width;
  const auto copy_one = [&](std::int64_t index) {
    const std::int64_t channel = index / (kernel_rows * kernel_columns);
    const std::int64_t down = index / kernel_columns % kernel_rows * conv.dilation[0];
    const std::int64_t right = index % kernel_columns * conv.dilation[1] + grid.origin[1];
    const Inside columns = inside(output_columns, right, conv.stride[1], width);
    Scalar* row =
        to + index / group_rows * patches.stride(0) + index % group_rows * patches.stride(1);
    for (std::int64_t example = 0; example < chunk.examples; ++example) {
      const Scalar* const image = from + (example * channels + channel) * height * width;
      if (plain) {
        row = std::copy_n(image + chunk.row * width, chunk.rows * width, row);
        continue;
      }
      for (std::int64_t output = chunk.row; output < chunk.row + chunk.rows; ++output) {
        const std::int64_t line = output * conv.stride[0] + down + grid.origin[0];
        if (line < 0 || line >= height) {
          std::fill(row, row + output_columns, Scalar(0));
        } else {
          copy_row(image + line * width, conv.stride[1], columns, output_columns, row);
        }
        row += output_columns;
      }
    }
  };
  const std::int64_t grain = kPatchGrain / std::max<std::int64_t>(1, patches.size(2));
  at::parallel_for(0, patches.size(0) * group_rows, std::max<std::int64_t>(1, grain),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t index = begin; index < end; ++index) copy_one(index);
                   });
}

// Rows or columns of the input that a part of the grid reaches: where they begin, and how many.
std::pair<std::int64_t, std::int64_t> reached(const ConvGeometry& conv, const PatchGrid& grid,
                                              std::size_t axis, std::int64_t first,
                                              std::int64_t count) {
  return {grid.origin[axis] + first * conv.stride[axis],
          (count - 1) * conv.stride[axis] + conv.dilation[axis] * (conv.kernel[axis] - 1) + 1};
}

// Elsewhere as one copy of a view of the examples, padded or cropped to what is reached, in which
// patches overlap.
void copy_through_view(const at::Tensor& input, const ConvGeometry& conv, const PatchGrid& grid,
                       const PatchChunk& chunk, const at::Tensor& patches) {
  at::Tensor padded = input.narrow(0, chunk.example, chunk.examples);
  const auto [top, rows] = reached(conv, grid, 0, chunk.row, chunk.rows);
  const auto [left, columns] = reached(conv, grid, 1, 0, grid.size[1]);
  at::Tensor to = patches;
  if (top + rows <= 0 || left + columns <= 0 || top >= padded.size(2) || left >= padded.size(3)) {
    to.zero_();  // padding alone
    return;
  }
  const std::array<std::int64_t, 4> pad = {-left, left + columns - padded.size(3), -top,
                                           top + rows - padded.size(2)};
  if (pad != std::array<std::int64_t, 4>{}) padded = at::constant_pad_nd(padded, pad, 0);
  const std::int64_t channels = padded.size(1) / conv.groups;
  const auto stride = padded.strides();
  const at::Tensor view = padded.as_strided(
      {conv.groups, channels, conv.kernel[0], conv.kernel[1], chunk.examples, chunk.rows,
       grid.size[1]},
      {channels * stride[1], stride[1], conv.dilation[0] * stride[2], conv.dilation[1] * stride[3],
       stride[0], conv.stride[0] * stride[2], conv.stride[1] * stride[3]},
      padded.storage_offset());
  (to.dim() == 3 ? to.view(view.sizes()) : to.unsqueeze(0)).copy_(view);
}

}  // namespace

std::array<std::int64_t, 2> output_size(const at::Tensor& input, const ConvGeometry& conv) {
  std::array<std::int64_t, 2> size{};
  for (std::size_t axis = 0; axis < 2; ++axis) {
    const std::int64_t reach = conv.dilation[axis] * (conv.kernel[axis] - 1) + 1;
    const std::int64_t room =
        input.size(2 + static_cast<std::int64_t>(axis)) + 2 * conv.padding[axis] - reach;
    SPDKFAC_CHECK(room >= 0, fmt::format("a kernel that reaches over {} has no place in the input "
                                         "(room {})",
                                         reach, room));
    size[axis] = room / conv.stride[axis] + 1;
  }
  return size;
}

PatchGrid output_grid(const at::Tensor& input, const ConvGeometry& conv) {
  return {{-conv.padding[0], -conv.padding[1]}, output_size(input, conv)};
}

void copy_patches(const at::Tensor& input, const ConvGeometry& conv, const PatchGrid& grid,
                  const PatchChunk& chunk, at::Tensor patches) {
  const std::int64_t columns = chunk.examples * chunk.rows * grid.size[1];
  const std::int64_t features = input.size(1) * conv.kernel[0] * conv.kernel[1];
  SPDKFAC_CHECK(patches.numel() == features * columns, "patches of another size than their chunk");
  if (!input.is_cpu()) return copy_through_view(input, conv, grid, chunk, patches);
  SPDKFAC_CHECK(patches.dim() == 3 && patches.stride(2) == 1 && patches.size(2) == columns,
                "patches of another shape than their chunk");
  const at::Tensor examples =
      input.narrow(0, chunk.example, chunk.examples).to(patches.scalar_type()).contiguous();
  AT_DISPATCH_FLOATING_TYPES(patches.scalar_type(), "copy_patches",
                             [&] { copy_on_cpu<scalar_t>(examples, conv, grid, chunk, patches); });
}

}  // namespace spdkfac::kfac
