// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/mpi/pairwise_sum.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "spdkfac/base/units.h"

namespace spdkfac::comm {
namespace {

// Enough to keep a link busy between two polls, and little enough that neither direction gets far
// ahead of the other.
constexpr std::int64_t kPieceBytes = kMebibyte.value() / 4;
constexpr std::size_t kPiecesUnderWay = 4;

}  // namespace

PairwiseSum::PairwiseSum(const at::Tensor& tensor, MPI_Datatype type, const MpiWorld& world,
                         int tag, std::int64_t max_elements, std::string place)
    : tensor_(tensor.view({-1})),
      type_(type),
      world_(world),
      tag_(tag),
      piece_elements_(
          std::min(max_elements, kPieceBytes / static_cast<std::int64_t>(tensor.element_size()))),
      place_(std::move(place)) {
  while (pieces_.size() < kPiecesUnderWay && next_ < tensor_.numel()) {
    start_next(at::empty({count_from(next_)}, tensor_.options()));
  }
}

at::Tensor PairwiseSum::slice(std::int64_t first) const {
  return tensor_.narrow(0, first, count_from(first));
}

int PairwiseSum::count_from(std::int64_t first) const {
  return static_cast<int>(std::min(piece_elements_, tensor_.numel() - first));
}

void PairwiseSum::start_next(at::Tensor received) {
  const int count = count_from(next_);
  const int peer = 1 - world_.rank;
  Piece& piece =
      pieces_.emplace_back(Piece{next_, std::move(received), {MPI_REQUEST_NULL, MPI_REQUEST_NULL}});
  check_mpi(MPI_Irecv(piece.received.data_ptr(), count, type_, peer, tag_, world_.comm,
                      &piece.requests[0]),
            "MPI_Irecv", place_);
  check_mpi(
      MPI_Isend(slice(next_).data_ptr(), count, type_, peer, tag_, world_.comm, &piece.requests[1]),
      "MPI_Isend", place_);
  next_ += count;
}

bool PairwiseSum::test() {
  while (!pieces_.empty()) {
    Piece& piece = pieces_.front();
    int done = 0;
    check_mpi(MPI_Testall(static_cast<int>(piece.requests.size()), piece.requests.data(), &done,
                          MPI_STATUSES_IGNORE),
              "MPI_Testall", place_);
    if (done == 0) return false;
    check_mpi(MPI_Reduce_local(piece.received.data_ptr(), slice(piece.first).data_ptr(),
                               count_from(piece.first), type_, MPI_SUM),
              "MPI_Reduce_local", place_);
    at::Tensor free = std::move(piece.received);
    pieces_.pop_front();
    if (next_ < tensor_.numel()) start_next(std::move(free));
  }
  return true;
}

}  // namespace spdkfac::comm
