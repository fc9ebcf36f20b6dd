// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/cli/on_ranks.h"

#include <chrono>
#include <cstdio>
#include <thread>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/comm/mpi.h"
#include "spdkfac/train/ranks.h"

namespace spdkfac::cli {
namespace {

// Prints what went wrong on this rank and ends all ranks of the job, which could not know of it.
[[noreturn]] void end_all_ranks(const std::exception& error) {
  const int rank = train::launched_rank();
  fmt::print(stderr, "spdkfac: rank {}: {}\n", rank, error.what());
  std::fflush(stderr);
  // Where all ranks fail alike, mpirun shall hear it from one of them: it stumbles over several.
  if (rank > 0) std::this_thread::sleep_for(std::chrono::seconds(1));
  constexpr int kFailedRun = 1;
  constexpr int kUsageMistake = 2;
  abort_job(dynamic_cast<const ConfigError*>(&error) ? kUsageMistake : kFailedRun);
}

}  // namespace

void run_on_ranks(const std::function<void()>& body) {
  try {
    try {
      body();
    } catch (const c10::Error& error) {
      throw Error(fmt::format("torch: {}", error.what_without_backtrace()));
    }
  } catch (const std::exception& error) {
    if (launched_by_mpi()) end_all_ranks(error);
    throw;
  }
}

}  // namespace spdkfac::cli
