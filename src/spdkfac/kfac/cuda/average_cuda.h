// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace spdkfac::kfac {

// One factor of running_average.h on a GPU.
struct CudaAverage {
  at::Tensor sum;  // [groups, d, d], or packed triangles
  bool packed = false;
  double scale = 1;
  at::Tensor count;   // one element, or undefined: 1
  at::Tensor mean;    // [groups, d, d]
  at::Tensor weight;  // 0-d double
};

// Averages them in with few kernels on the current stream; returns which were finite, bool [count].
// no_cuda/ has those of a build without CUDA, which throw a ConfigError.
at::Tensor average_cuda(const std::vector<CudaAverage>& all, double decay);

// The means of the diagonals of all [groups, d, d], one after the other.
at::Tensor diagonal_means_cuda(const std::vector<at::Tensor>& matrices);

}  // namespace spdkfac::kfac
