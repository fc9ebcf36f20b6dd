// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/mirrored_peers.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "spdkfac/base/check.h"

namespace spdkfac::comm {

MirroredPeers::MirroredPeers(int rank, int size) : rank_(rank), size_(size) {
  SPDKFAC_CHECK(rank >= 0 && rank < size, fmt::format("rank {} of {}", rank, size));
}

Work MirroredPeers::start(Request request) {
  const c10::NoGradGuard no_grad;
  const bool root = request.root == rank_;
  switch (request.operation) {
    case Operation::kAllReduce:
      request.tensor.mul_(size_);
      break;
    case Operation::kReduce:
      if (root) request.tensor.mul_(size_);
      break;
    case Operation::kBroadcast:
      if (!root) request.tensor.zero_();
      break;
    case Operation::kAllGather:
      request.output.copy_(request.tensor.reshape({1, -1}).expand_as(request.output),
                           /*non_blocking=*/true);
      break;
    case Operation::kBarrier:
      break;
  }
  return Work();
}

}  // namespace spdkfac::comm
