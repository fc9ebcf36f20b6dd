// SPDX-License-Identifier: Apache-2.0
// Upper triangles in equal pieces, for kernels over lists of them; for sources of nvcc.
//
// A row and the one as far from the other end are together a line of dim + 1 elements. Each warp
// takes a piece of a line, and every thread kEach of its elements, all loaded before one is stored:
// so many loads on their way keep the memory busy.
#pragma once

#include <cstdint>

#include "spdkfac/kfac/cuda/kernel_parts.h"

namespace spdkfac::kfac {

constexpr int kWarps = 8;  // of a block
constexpr int kEach = 9;   // so that lines of 513, 1025, … make 2, 4, … full pieces

// Pieces of a line; the last may be longer than the others by what is left.
constexpr int kPiece = kWarp * (kEach - 1);
__host__ __device__ inline int pieces_of_line(int dim) {
  return dim < kWarp ? 1 : (dim + kPiece - kWarp) / kPiece;
}

// Elements before the diagonal's in a row of packed triangles, or of whole matrices.
__host__ __device__ inline std::int64_t packed_row(std::int64_t row, std::int64_t dim) {
  return row * dim - row * (row - 1) / 2;
}
__host__ __device__ inline std::int64_t matrix_row(std::int64_t row, std::int64_t stride) {
  return row * (stride + 1);
}

// Where the elements of a line lie.
struct LinePlaces {
  std::int64_t top;
  std::int64_t bottom;
  int top_count;

  __device__ std::int64_t operator[](int index) const {
    return (index < top_count ? top : bottom) + index;
  }
};

struct LinePiece {
  std::int64_t group;
  int top;  // rows
  int bottom;
  int top_count;  // elements
  int begin;      // of this thread
  int end;

  __device__ LinePiece(std::int64_t index, int dim) {
    const int pairs = (dim + 1) / 2;
    const int pieces = pieces_of_line(dim);
    const int piece = static_cast<int>(index % pieces);
    const std::int64_t line = index / pieces;
    group = line / pairs;
    top = static_cast<int>(line % pairs);
    bottom = dim - 1 - top;
    top_count = dim - top;
    begin = piece * kPiece + static_cast<int>(threadIdx.x);
    const int count = bottom == top ? top_count : dim + 1;
    end = piece + 1 < pieces ? min(count, (piece + 1) * kPiece) : count;
  }

  // With `row`, where the diagonal's element of a row lies.
  template <class Row>
  __device__ LinePlaces places(const Row& row) const {
    return {row(top), row(bottom) - top_count, top_count};
  }

  // Calls visit(which of the thread's elements, its index in the line).
  template <class Visit>
  __device__ void each(const Visit& visit) const {
#pragma unroll
    for (int which = 0; which < kEach; ++which) {
      const int index = begin + which * kWarp;
      if (index < end) visit(which, index);
    }
  }
};

// The blocks of a list's entries, one entry after the other.
template <int kCount>
struct LineBlocks {
  unsigned first[kCount + 1];
  int count;

  // The entry of this block: the last that does not begin behind it.
  __device__ int entry() const {
    int low = 0;
    for (int high = count; high - low > 1;) {
      const int middle = (low + high) / 2;
      (blockIdx.x < first[middle] ? high : low) = middle;
    }
    return low;
  }
  // The piece of this warp, of its entry.
  __device__ std::int64_t piece(int entry) const {
    return std::int64_t{blockIdx.x - first[entry]} * kWarps + threadIdx.y;
  }
};

template <int kCount, class Entry>
LineBlocks<kCount> line_blocks(const Entry* entries, int count) {
  LineBlocks<kCount> blocks{};
  blocks.count = count;
  for (int index = 0; index < count; ++index) {
    const int dim = entries[index].dim;
    const std::int64_t pieces =
        std::int64_t{entries[index].groups} * ((dim + 1) / 2) * pieces_of_line(dim);
    blocks.first[index + 1] =
        blocks.first[index] + static_cast<unsigned>((pieces + kWarps - 1) / kWarps);
  }
  return blocks;
}

}  // namespace spdkfac::kfac
