// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace spdkfac::kfac {

// A layer's gradient and its moments for grafting onto Adam.
template <class Scalar>
struct AdamEntry {
  Scalar* gradient;         // `rows` rows of `columns` elements, in groups
  std::int64_t group_step;  // from the matrix of a group to the next, in elements
  Scalar* first;
  Scalar* second;
  std::int32_t moment_step;  // from a row of the moments to the next
  std::int32_t bias_row;     // whose moments are the last of each row; −1: there is none
  std::int32_t row_step;     // from a row of the gradient to the next
  std::int32_t group_rows;
  std::int32_t rows;
  std::int32_t columns;
};

struct AdamNumbers {
  double beta1;
  double beta2;
  double epsilon;
};

// For each of `count` layers: the moments take the gradient in, which becomes the first of them;
// lengths = ‖first/(√second + ε)‖, added up in double precision, always in the same order. If the
// square of an element of any gradient is not finite, `bad` becomes 1, the moments take zeros in
// and all gradients become NaN. `entries` is the GPU's, `partial` has kAdamParts elements for each
// layer. Three kernels, and one that clears `bad`.
constexpr int kAdamParts = 256;
template <class Scalar>
cudaError_t launch_adam(const AdamEntry<Scalar>* entries, std::int64_t count,
                        const AdamNumbers& numbers, std::int32_t* bad, double* partial,
                        double* lengths, cudaStream_t stream);

}  // namespace spdkfac::kfac
