// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "spdkfac/comm/cuda/delay.h"

namespace spdkfac::comm {
namespace {

__device__ std::uint64_t nanoseconds() {
  std::uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

__global__ void wait_for(std::uint64_t length) {
  const std::uint64_t begin = nanoseconds();
  while (nanoseconds() - begin < length) __nanosleep(200);
}

}  // namespace

void delay_on_stream(cudaStream_t stream, Seconds time) {
  const double nanoseconds = time.value() * 1e9;
  if (nanoseconds >= 1) wait_for<<<1, 1, 0, stream>>>(static_cast<std::uint64_t>(nanoseconds));
}

}  // namespace spdkfac::comm
