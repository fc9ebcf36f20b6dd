// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "spdkfac/comm/communicator.h"

namespace spdkfac {

// One rank of a group whose other ranks are not there: they are taken to hold the same as this one.
// So a sum is `size` times this rank's tensor; what an absent root broadcasts is zeros. Everything
// is done at once, on the current stream. With an emulated link in front, one machine can do the
// work of one rank of a large group.
class AbsentPeers final : public Communicator {
 public:
  AbsentPeers(int rank, int size);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Work start(Request request) override;

 private:
  int rank_;
  int size_;
};

}  // namespace spdkfac
