// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/root_work.h"

#include <exception>
#include <future>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "spdkfac/base/error.h"

namespace spdkfac::comm {
namespace {

enum class RootStatus : std::int64_t { kWorking, kDone, kFailed };

RootStatus status_of_root(Communicator& communicator, RootStatus mine, const std::string& what) {
  const at::Tensor status = at::full({1}, static_cast<std::int64_t>(mine), at::kLong);
  communicator.broadcast_async(status, 0, what).wait();
  return static_cast<RootStatus>(status.item<std::int64_t>());
}

}  // namespace

void run_on_rank_zero(Communicator& communicator, std::chrono::milliseconds beat,
                      const std::string& what, const std::function<void()>& work) {
  if (communicator.rank() != 0) {
    RootStatus status = RootStatus::kWorking;
    while (status == RootStatus::kWorking) status = status_of_root(communicator, status, what);
    if (status == RootStatus::kFailed) {
      throw CommError(fmt::format("{}: failed on rank 0, whose message says why", what));
    }
    return;
  }
  std::future<void> done = std::async(std::launch::async, work);
  while (done.wait_for(beat) != std::future_status::ready) {
    status_of_root(communicator, RootStatus::kWorking, what);
  }
  std::exception_ptr error;
  try {
    done.get();
  } catch (...) {
    error = std::current_exception();
  }
  status_of_root(communicator, error ? RootStatus::kFailed : RootStatus::kDone, what);
  if (error) std::rethrow_exception(error);
}

}  // namespace spdkfac::comm
