// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "spdkfac/comm/communicator.h"

namespace spdkfac::comm {

// One rank of a group whose other ranks do not exist: each is assumed to hold the same tensors as
// this one. A sum is `size` times this rank's tensor; a broadcast from another root yields zeros.
// Every operation is done at once, on the current stream. Behind an emulated link, one machine can
// do the work of one rank of a large group.
class MirroredPeers final : public Communicator {
 public:
  MirroredPeers(int rank, int size);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Work start(Request request) override;

 private:
  int rank_;
  int size_;
};

}  // namespace spdkfac::comm
