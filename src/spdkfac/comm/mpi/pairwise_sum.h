// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>

#include <ATen/core/Tensor.h>
#include <mpi.h>

#include "spdkfac/comm/mpi/mpi_world.h"

namespace spdkfac {

// The sum of the tensors of two ranks, in place. They exchange pieces and add: on a link that
// carries both directions at once in half the time of up and down a tree, and as few pieces are
// under way at a time, both ranks are done at the same time. Sums of two are the same on both.
class PairwiseSum {
 public:
  static constexpr int kRanks = 2;

  // Starts it. `tag` tells its pieces from those of others under way; `place` is for messages.
  PairwiseSum(const at::Tensor& tensor, MPI_Datatype type, const MpiWorld& world, int tag,
              std::int64_t max_elements, std::string place);

  // Whether it is complete; a CommError when MPI fails. While it is not, nothing may be destroyed.
  bool test();

 private:
  struct Piece {
    std::int64_t first;
    at::Tensor received;
    std::array<MPI_Request, 2> requests;  // in and out
  };
  void start_next(at::Tensor received);
  // The piece that begins there.
  at::Tensor slice(std::int64_t first) const;
  int count_from(std::int64_t first) const;

  at::Tensor tensor_;  // flat
  MPI_Datatype type_;
  MpiWorld world_;
  int tag_;
  std::int64_t piece_elements_;
  std::string place_;
  std::int64_t next_ = 0;     // the first element that has not left
  std::deque<Piece> pieces_;  // under way
};

}  // namespace spdkfac
