// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

#include "support/tensors.h"

namespace spdkfac::support {

// The symmetric matrix [d, d] with these eigenvalues and random eigenvectors, in double precision
// on the CPU.
inline at::Tensor with_eigenvalues(std::uint64_t seed, const std::vector<double>& eigenvalues) {
  const auto d = static_cast<std::int64_t>(eigenvalues.size());
  const at::Tensor q = std::get<0>(at::linalg_qr(normal(seed, {d, d})));
  const at::Tensor matrix = at::matmul(q * at::tensor(eigenvalues, at::kDouble), q.t());
  return (matrix + matrix.t()) / 2;
}

// From 1 down to 1/condition in equal ratios.
inline at::Tensor with_condition(std::uint64_t seed, std::int64_t dim, double condition) {
  std::vector<double> eigenvalues;
  for (std::int64_t i = 0; i < dim; ++i) {
    const double part = dim == 1 ? 0 : static_cast<double>(i) / static_cast<double>(dim - 1);
    eigenvalues.push_back(std::pow(condition, -part));
  }
  return with_eigenvalues(seed, eigenvalues);
}

}  // namespace spdkfac::support
