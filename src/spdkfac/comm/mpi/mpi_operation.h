// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include <mpi.h>

#include "spdkfac/comm/communicator.h"
#include "spdkfac/comm/mpi/mpi_world.h"
#include "spdkfac/comm/mpi/pairwise_sum.h"
#include "spdkfac/comm/signature.h"

namespace spdkfac::comm {

// An operation on CPU tensors that MPI carries out. It cannot be cancelled: until it is complete,
// it and the tensors must stay where they are.
class MpiOperation {
 public:
  // Starts it, in pieces of at most `max_elements`. `tag` is the same on all ranks and differs from
  // the tags of the other operations under way.
  MpiOperation(const Request& request, const MpiWorld& world, std::int64_t max_elements,
               int tag = 0);
  MpiOperation(const MpiOperation&) = delete;
  MpiOperation& operator=(const MpiOperation&) = delete;

  // Whether it is complete. Throws a CommError when MPI fails or rank 0 called a different
  // collective.
  bool test();

 private:
  MPI_Request& new_request();
  void start_piece(const Request& request, std::int64_t first, std::int64_t count);
  void gather_in_pieces(const Request& request, std::int64_t max_elements);

  MpiWorld world_;
  std::string place_;
  at::Tensor input_;  // a copy of the tensor, where that is faster
  // Rank 0 sends its signature with every operation: MPI does not notice when ranks call different
  // collectives, and some of them then return wrong numbers.
  Signature mine_;
  Signature first_rank_;
  std::deque<MPI_Request> requests_;  // those that are not complete
  std::optional<PairwiseSum> pairwise_;
};

}  // namespace spdkfac::comm
