// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>

#include <ATen/core/Tensor.h>
#include <mpi.h>

#include "spdkfac/comm/mpi/mpi_world.h"

namespace spdkfac::comm {

// The sum of the tensors of two ranks, in place. The ranks exchange pieces and add them. On a
// full-duplex link this takes half the time of a tree; few pieces are under way at a time, so both
// ranks finish together. A sum of two numbers is the same in either order, so the results agree.
class PairwiseSum {
 public:
  static constexpr int kRanks = 2;

  // Starts it. `tag` is unique among the sums under way; `place` is for messages.
  PairwiseSum(const at::Tensor& tensor, MPI_Datatype type, const MpiWorld& world, int tag,
              std::int64_t max_elements, std::string place);

  // Whether it is complete. Throws a CommError when MPI fails. Do not destroy it before it is
  // complete.
  bool test();

 private:
  struct Piece {
    std::int64_t first;
    at::Tensor received;
    std::array<MPI_Request, 2> requests;  // in and out
  };
  void start_next(at::Tensor received);
  // The piece that begins at this element.
  at::Tensor slice(std::int64_t first) const;
  int count_from(std::int64_t first) const;

  at::Tensor tensor_;  // flat
  MPI_Datatype type_;
  MpiWorld world_;
  int tag_;
  std::int64_t piece_elements_;
  std::string place_;
  std::int64_t next_ = 0;     // the first element that was not sent yet
  std::deque<Piece> pieces_;  // under way
};

}  // namespace spdkfac::comm
