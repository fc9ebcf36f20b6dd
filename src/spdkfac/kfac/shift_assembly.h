// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#ifdef __CUDACC__
#define SPDKFAC_HOST_DEVICE __host__ __device__
#else
#define SPDKFAC_HOST_DEVICE
#endif

namespace spdkfac::kfac {

// The products of the patches around one edge of the image: places [row_begin, row_end) x
// [column_begin, column_end) of the kernel met it. Null where the convolution leaves nothing out.
template <class Scalar>
struct EdgeProducts {
  const Scalar* values = nullptr;  // [channels · rows · columns, the same], upper triangle
  std::int64_t stride = 0;         // of its rows
  std::int32_t row_begin = 0;
  std::int32_t row_end = 0;
  std::int32_t column_begin = 0;
  std::int32_t column_end = 0;
};

// What a factor is put together from.
template <class Scalar>
struct ShiftAssembly {
  const Scalar* shifted = nullptr;  // [channels, channels, kh, 2kw−1], any strides
  std::int64_t shifted_stride[4] = {0, 0, 0, 0};
  EdgeProducts<Scalar> edges[4];
  std::int32_t kernel_rows = 1;
  std::int32_t kernel_columns = 1;
  std::int32_t dim = 0;
};

// Element (row, column) of Σããᵀ, row ≤ column; features are in (channel, kernel row, kernel column)
// order.
template <class Scalar>
SPDKFAC_HOST_DEVICE inline Scalar shifted_element(const ShiftAssembly<Scalar>& from,
                                                  std::int32_t row, std::int32_t column) {
  const std::int32_t places = from.kernel_rows * from.kernel_columns;
  const std::int32_t c1 = row / places;
  const std::int32_t u = row - c1 * places;
  const std::int32_t u_row = u / from.kernel_columns;
  const std::int32_t u_column = u - u_row * from.kernel_columns;
  const std::int32_t c2 = column / places;
  const std::int32_t v = column - c2 * places;
  const std::int32_t v_row = v / from.kernel_columns;
  const std::int32_t v_column = v - v_row * from.kernel_columns;
  // A shift that goes up is one down the other way round.
  const bool up = v_row < u_row;
  const std::int32_t down = up ? u_row - v_row : v_row - u_row;
  const std::int32_t right = up ? u_column - v_column : v_column - u_column;
  Scalar value =
      from.shifted[(up ? c2 : c1) * from.shifted_stride[0] +
                   (up ? c1 : c2) * from.shifted_stride[1] + down * from.shifted_stride[2] +
                   (right + from.kernel_columns - 1) * from.shifted_stride[3]];
  for (const EdgeProducts<Scalar>& edge : from.edges) {
    const bool inside = edge.values != nullptr && u_row >= edge.row_begin &&
                        v_row >= edge.row_begin && u_row < edge.row_end && v_row < edge.row_end &&
                        u_column >= edge.column_begin && v_column >= edge.column_begin &&
                        u_column < edge.column_end && v_column < edge.column_end;
    if (!inside) continue;
    const std::int32_t rows = edge.row_end - edge.row_begin;
    const std::int32_t columns = edge.column_end - edge.column_begin;
    const std::int64_t i =
        (std::int64_t{c1} * rows + u_row - edge.row_begin) * columns + u_column - edge.column_begin;
    const std::int64_t j =
        (std::int64_t{c2} * rows + v_row - edge.row_begin) * columns + v_column - edge.column_begin;
    value -= edge.values[i * edge.stride + j];
  }
  return value;
}

}  // namespace spdkfac::kfac
