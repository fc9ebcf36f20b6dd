// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/clock_offset.h"

#include <chrono>
#include <limits>

#include <ATen/ATen.h>

namespace spdkfac::comm {
namespace {

constexpr int kRounds = 20;

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Seconds clock_offset(Communicator& communicator, const std::function<double()>& clock) {
  const int rank = communicator.rank();
  const at::Tensor message = at::zeros({1}, at::kDouble);
  double* const value = message.mutable_data_ptr<double>();
  double mine = 0;
  for (int asked = 1; asked < communicator.size(); ++asked) {
    double shortest = std::numeric_limits<double>::infinity();
    double offset = 0;
    for (int round = 0; round < kRounds; ++round) {
      const double begin = clock();
      communicator.broadcast_async(message, 0, "clock: question").wait();
      *value = clock();
      communicator.broadcast_async(message, asked, "clock: answer").wait();
      const double end = clock();
      if (end - begin >= shortest) continue;
      shortest = end - begin;
      offset = *value - (begin + end) / 2;
    }
    *value = offset;
    communicator.broadcast_async(message, 0, "clock: offset").wait();
    if (rank == asked) mine = *value;
  }
  return Seconds(mine);
}

}  // namespace spdkfac::comm
