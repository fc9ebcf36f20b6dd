// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include <mpi.h>

#include "spdkfac/comm/communicator.h"
#include "spdkfac/comm/mpi/mpi_world.h"
#include "spdkfac/comm/mpi/pairwise_sum.h"

namespace spdkfac {

// `all_reduce 'factors 3' of 1000 elements on rank 1 of 4`, for messages.
std::string place_of(const Request& request, const MpiWorld& world);

// An operation on tensors of the host on its way through MPI. It cannot be taken back: while it is
// not complete, it and the tensors must stay where they are.
class MpiOperation {
 public:
  // Starts it, in pieces of at most `max_elements`. `tag` is the same on all ranks and tells it
  // from others that are under way.
  MpiOperation(const Request& request, const MpiWorld& world, std::int64_t max_elements,
               int tag = 0);
  MpiOperation(const MpiOperation&) = delete;
  MpiOperation& operator=(const MpiOperation&) = delete;

  // Whether it is complete. A CommError when MPI fails, or when rank 0 has started another
  // operation.
  bool test();

 private:
  // What rank 0 tells the others with every operation. MPI does not notice when ranks start
  // different ones: some end with wrong numbers.
  struct Signature {
    Operation operation = Operation::kBarrier;
    std::int32_t type = 0;
    std::int32_t root = 0;
    std::int64_t elements = 0;
    std::array<char, 64> what{};

    bool operator==(const Signature&) const = default;
    std::string text() const;
  };

  static Signature signature_of(const Request& request);
  MPI_Request& new_request();
  void start_piece(const Request& request, std::int64_t first, std::int64_t count);
  void gather_in_pieces(const Request& request, std::int64_t max_elements);

  MpiWorld world_;
  std::string place_;
  at::Tensor input_;  // a copy of the tensor, where that is faster
  Signature mine_;
  Signature first_rank_;
  std::deque<MPI_Request> requests_;  // those that are not complete
  std::optional<PairwiseSum> pairwise_;
};

}  // namespace spdkfac
