// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/mpi/mpi_operation.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/error.h"

namespace spdkfac::comm {
namespace {

// Open MPI 4 sums in place up and down a tree, which puts 2·log2(P) times the payload on the
// busiest link. Given a separate input, it uses reduce-scatter and all-gather (twice the payload)
// from this many ranks on. Small operations are faster on the tree.
constexpr int kMinRanksOfCopy = 4;
constexpr Bytes kMinBytesOfCopy = kMebibyte;

static_assert(std::is_trivially_copyable_v<Signature>, "it is sent as bytes");

MPI_Datatype mpi_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return MPI_FLOAT;
    case at::kDouble:
      return MPI_DOUBLE;
    case at::kLong:
      return MPI_INT64_T;
    default:
      return MPI_UINT8_T;
  }
}

std::byte* address(const at::Tensor& tensor, std::int64_t element) {
  return static_cast<std::byte*>(tensor.data_ptr()) +
         element * static_cast<std::int64_t>(tensor.element_size());
}

}  // namespace

MPI_Request& MpiOperation::new_request() { return requests_.emplace_back(MPI_REQUEST_NULL); }

MpiOperation::MpiOperation(const Request& request, const MpiWorld& world, std::int64_t max_elements,
                           int tag)
    : world_(world),
      place_(place_of(request, world.rank, world.size)),
      mine_(request),
      first_rank_(mine_) {
  SPDKFAC_CHECK(0 < max_elements && max_elements <= std::numeric_limits<int>::max(),
                fmt::format("pieces of {} elements", max_elements));
  check_mpi(MPI_Ibcast(&first_rank_, sizeof(Signature), MPI_BYTE, 0, world_.comm, &new_request()),
            "MPI_Ibcast", place_);
  if (request.operation == Operation::kBarrier) {
    check_mpi(MPI_Ibarrier(world_.comm, &new_request()), "MPI_Ibarrier", place_);
    return;
  }
  if (request.operation == Operation::kAllReduce && world_.size == PairwiseSum::kRanks) {
    pairwise_.emplace(request.tensor, mpi_type(request.tensor.scalar_type()), world_, tag,
                      max_elements, place_);
    return;
  }
  if (request.operation == Operation::kAllReduce && world_.size >= kMinRanksOfCopy &&
      Bytes(static_cast<std::int64_t>(request.tensor.nbytes())) >= kMinBytesOfCopy) {
    input_ = request.tensor.clone();
  }
  const std::int64_t elements = request.tensor.numel();
  if (request.operation == Operation::kAllGather && elements > max_elements) {
    gather_in_pieces(request, max_elements);
    return;
  }
  for (std::int64_t first = 0; first < elements; first += max_elements) {
    start_piece(request, first, std::min(max_elements, elements - first));
  }
}

void MpiOperation::start_piece(const Request& request, std::int64_t first, std::int64_t count) {
  std::byte* const data = address(request.tensor, first);
  const MPI_Datatype type = mpi_type(request.tensor.scalar_type());
  const int elements = static_cast<int>(count);
  MPI_Request* const handle = &new_request();
  switch (request.operation) {
    case Operation::kAllReduce: {
      const void* from = input_.defined() ? address(input_, first) : MPI_IN_PLACE;
      check_mpi(MPI_Iallreduce(from, data, elements, type, MPI_SUM, world_.comm, handle),
                "MPI_Iallreduce", place_);
      return;
    }
    case Operation::kReduce: {
      const bool here = world_.rank == request.root;
      check_mpi(MPI_Ireduce(here ? MPI_IN_PLACE : data, here ? data : nullptr, elements, type,
                            MPI_SUM, request.root, world_.comm, handle),
                "MPI_Ireduce", place_);
      return;
    }
    case Operation::kBroadcast:
      check_mpi(MPI_Ibcast(data, elements, type, request.root, world_.comm, handle), "MPI_Ibcast",
                place_);
      return;
    case Operation::kAllGather:
      check_mpi(MPI_Iallgather(data, elements, type, request.output.data_ptr(), elements, type,
                               world_.comm, handle),
                "MPI_Iallgather", place_);
      return;
    case Operation::kBarrier:
      return;
  }
}

// The pieces of a rank are not adjacent in the output, so every rank broadcasts its row.
void MpiOperation::gather_in_pieces(const Request& request, std::int64_t max_elements) {
  const std::int64_t elements = request.tensor.numel();
  std::copy_n(address(request.tensor, 0), request.tensor.nbytes(),
              address(request.output, world_.rank * elements));
  for (int root = 0; root < world_.size; ++root) {
    const Request row{.operation = Operation::kBroadcast,
                      .tensor = request.output,
                      .output = {},
                      .root = root,
                      .what = request.what};
    for (std::int64_t first = 0; first < elements; first += max_elements) {
      start_piece(row, root * elements + first, std::min(max_elements, elements - first));
    }
  }
}

bool MpiOperation::test() {
  for (; !requests_.empty(); requests_.pop_front()) {
    int done = 0;
    check_mpi(MPI_Test(&requests_.front(), &done, MPI_STATUS_IGNORE), "MPI_Test", place_);
    if (done == 0) return false;
    if (first_rank_ == mine_) continue;
    throw CommError(
        different_calls("mpi", world_.size, {world_.rank, mine_}, {/*rank=*/0, first_rank_}));
  }
  return !pairwise_ || pairwise_->test();
}

}  // namespace spdkfac::comm
