// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <ATen/ATen.h>

#include "support/device.h"

// Tensors whose sums over the ranks are known: element i of rank r is (i mod 100 + seed)·(r + 1),
// whole numbers that a float holds exactly.
namespace spdkfac::numbers {

inline at::Tensor base(std::int64_t elements, at::ScalarType type, std::int64_t seed) {
  const at::Tensor index = at::arange(elements, at::kLong);
  return (index.remainder(100) + seed).to(support::test_options(type));
}

inline at::Tensor of_rank(int rank, std::int64_t elements, at::ScalarType type,
                          std::int64_t seed = 0) {
  return base(elements, type, seed) * (rank + 1);
}

// Σ (r + 1) = P·(P + 1)/2.
inline at::Tensor sum(int size, std::int64_t elements, at::ScalarType type, std::int64_t seed = 0) {
  return base(elements, type, seed) * (size * (size + 1) / 2);
}

// Row r is the tensor of rank r.
inline at::Tensor gathered(int size, std::int64_t elements, at::ScalarType type,
                           std::int64_t seed = 0) {
  at::Tensor all = at::empty({size, elements}, support::test_options(type));
  for (int rank = 0; rank < size; ++rank) all[rank].copy_(of_rank(rank, elements, type, seed));
  return all;
}

}  // namespace spdkfac::numbers
