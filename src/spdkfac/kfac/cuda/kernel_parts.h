// SPDX-License-Identifier: Apache-2.0
// What kernels over lists of tensors share; for sources of nvcc.
#pragma once

#include <algorithm>

namespace spdkfac::kfac {

// A list as the parameter of a kernel.
template <class Entry, int kCount>
struct Entries {
  Entry entry[kCount];
};

template <int kCount, class Entry>
Entries<Entry, kCount> copied(const Entry* entries, int count) {
  Entries<Entry, kCount> all{};
  std::copy_n(entries, count, all.entry);
  return all;
}

// The sum of the values of a block's threads, in its first thread. Before a block calls it again
// its threads must meet.
template <int kThreads>
__device__ double block_sum(double value) {
  __shared__ double partial[kThreads];
  partial[threadIdx.x] = value;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) partial[threadIdx.x] += partial[threadIdx.x + half];
  }
  return partial[0];
}

}  // namespace spdkfac::kfac
