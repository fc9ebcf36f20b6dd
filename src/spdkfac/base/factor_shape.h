// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "spdkfac/base/solver.h"

namespace spdkfac {

// Elements of the upper triangle, diagonal included, of a symmetric matrix: what travels.
constexpr std::int64_t packed_elements(std::int64_t dim) { return dim * (dim + 1) / 2; }

// Elements of what a refresh makes of such a matrix, as it travels: its inverse, or eigenvectors
// and eigenvalues; those of a single element are known.
constexpr std::int64_t result_elements(std::int64_t dim, Solver solver) {
  return keeps_basis(solver) && dim > 1 ? dim * (dim + 1) : packed_elements(dim);
}

// The form of a Kronecker factor. Each group of a layer's weight has a factor of `size` rows, of
// which `blocks` square blocks of one dimension are kept along the diagonal; the rest counts as
// zero. One block is the whole factor, as many blocks as rows are its diagonal. The last block of a
// group may have fewer rows than the others; it is padded with zeros, which change no number.
//
// A tensor with the factor is [matrices(), dim(), dim()].
struct FactorShape {
  std::int64_t size = 0;
  std::int64_t groups = 1;
  std::int64_t blocks = 1;  // of each group

  constexpr std::int64_t dim() const { return (size + blocks - 1) / blocks; }
  constexpr std::int64_t matrices() const { return groups * blocks; }
  constexpr bool is_diagonal() const { return dim() == 1; }
  constexpr bool is_split() const { return blocks > 1; }
  // Rows of a block that are no padding.
  constexpr std::int64_t rows(std::int64_t block) const {
    return std::min(dim(), size - block * dim());
  }
  constexpr std::int64_t packed() const { return matrices() * packed_elements(dim()); }
  constexpr std::int64_t result_elements(Solver solver) const {
    return matrices() * spdkfac::result_elements(dim(), solver);
  }
  constexpr std::int64_t elements() const { return matrices() * dim() * dim(); }
  // Whether there are so many blocks of one dimension that none is all padding.
  constexpr bool is_valid() const {
    return size >= 1 && groups >= 1 && blocks >= 1 && (blocks - 1) * dim() < size;
  }
  // The factor in as few blocks as possible of at most `largest` rows.
  constexpr FactorShape in_blocks_of(std::int64_t largest) const {
    return {size, groups, (size + largest - 1) / largest};
  }
  constexpr FactorShape as_diagonal() const { return {size, groups, size}; }
  bool operator==(const FactorShape&) const = default;
};

}  // namespace spdkfac
