// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/mpi/mpi_process.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/comm/awake_clock.h"
#include "spdkfac/comm/mpi.h"
#include "spdkfac/comm/mpi/mpi_operation.h"

namespace spdkfac::comm {
namespace {

struct Process {
  std::mutex mutex;
  MpiUser* user = nullptr;
  MpiWorld world;
  std::string failure;
  std::chrono::milliseconds timeout{0};  // of the last user
};

// Never destroyed: users may be destroyed later than every static object.
Process& process() {
  static auto* const state = new Process;
  return *state;
}

double seconds(std::chrono::milliseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

bool is_initialised() {
  int initialised = 0;
  int finalised = 0;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalised);
  return initialised != 0 && finalised == 0;
}

// Polls until `complete` returns true; returns false after the timeout.
template <class Complete>
bool wait_within(std::chrono::milliseconds timeout, Complete complete,
                 std::chrono::microseconds pause = std::chrono::microseconds(50)) {
  for (AwakeClock awake; awake.now() <= timeout; awake.tick()) {
    if (complete()) return true;
    std::this_thread::sleep_for(pause);
  }
  return false;
}

// MPI_Finalize waits for all ranks without a limit, so all ranks first meet in a barrier that has
// one. If another rank is still working, the barrier fails because the ranks' calls differ.
void finalise(const Process& state) {
  std::string message;
  try {
    MpiOperation end({.operation = Operation::kBarrier,
                      .tensor = {},
                      .output = {},
                      .root = 0,
                      .what = "end of the process"},
                     state.world, /*max_elements=*/1);
    if (wait_within(state.timeout, [&end] { return end.test(); })) {
      MPI_Finalize();
      return;
    }
    message = fmt::format(
        "mpi: rank {} of {} is exiting, but another rank has not reached its end within {:g} s; it "
        "died, stopped, or is still working: check the output of the other ranks",
        state.world.rank, state.world.size, seconds(state.timeout));
  } catch (const std::exception& error) {
    message = error.what();
  }
  std::fputs(fmt::format("spdkfac: {}\n", message).c_str(), stderr);
}

void at_exit() {
  Process& state = process();
  MpiUser* user = nullptr;
  {
    const std::lock_guard lock(state.mutex);
    user = state.user;
  }
  if (user != nullptr) user->stop_at_exit();
  const std::lock_guard lock(state.mutex);
  if (state.failure.empty() && state.world.comm != MPI_COMM_NULL && is_initialised()) {
    finalise(state);
  }
}

// MPI_Init waits for all ranks without a limit and cannot be left, so this ends the process when
// another rank never starts. However short operations may be, programs start seconds apart.
class StartLimit {
 public:
  explicit StartLimit(std::chrono::milliseconds timeout)
      : limit_(std::max<std::chrono::milliseconds>(timeout, std::chrono::seconds(20))),
        thread_([this] { watch(); }) {}
  ~StartLimit() {
    started_ = true;
    thread_.join();
  }

 private:
  void watch() const {
    if (wait_within(
            limit_, [this] { return started_.load(); }, std::chrono::milliseconds(2))) {
      return;
    }
    const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
    std::fputs(
        fmt::format("spdkfac: mpi: MPI_Init{} has not ended after {:g} s; another rank died, "
                    "stopped, or does not use MPI: check the output of the other ranks\n",
                    rank == nullptr ? "" : fmt::format(" on rank {}", rank), seconds(limit_))
            .c_str(),
        stderr);
    std::fflush(nullptr);
    std::_Exit(1);
  }

  std::chrono::milliseconds limit_;
  std::atomic<bool> started_{false};
  std::thread thread_;
};

void initialise(const CommOptions& options) {
  int provided = MPI_THREAD_SINGLE;
  const bool ours = !is_initialised();
  if (ours) {
    // Our thread sleeps between polls. With more ranks than cores Open MPI also yields the core
    // inside each poll; on a busy core it then returns milliseconds later.
    setenv("OMPI_MCA_mpi_yield_when_idle", "0", /*overwrite=*/0);
    // The default chain advances by one small piece per poll; the binomial tree sends whole
    // tensors.
    setenv("OMPI_MCA_coll_libnbc_ireduce_algorithm", "2", /*overwrite=*/0);
    const StartLimit limit(options.timeout);
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread",
              "start");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  } else {
    MPI_Query_thread(&provided);
  }
  if (provided != MPI_THREAD_MULTIPLE) {
    throw ConfigError(fmt::format(
        "mpi: the library does not provide MPI_THREAD_MULTIPLE (level {}); use an MPI built with "
        "threads",
        provided));
  }
  if (ours) std::atexit(at_exit);
}

MpiWorld copy_world(const CommOptions& options) {
  MpiWorld world;
  MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world.size);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Comm_idup(MPI_COMM_WORLD, &world.comm, &request), "MPI_Comm_idup", "start");
  const auto complete = [&request] {
    int done = 0;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test", "start");
    return done != 0;
  };
  if (!wait_within(options.timeout, complete)) {
    throw CommError(
        fmt::format("mpi: not all ranks started MPI within {:g} s (rank {} of {} is waiting); "
                    "another rank died, "
                    "stopped, or does not use MPI: check its output",
                    seconds(options.timeout), world.rank, world.size));
  }
  MPI_Comm_set_errhandler(world.comm, MPI_ERRORS_RETURN);
  return world;
}

}  // namespace

MpiWorld begin_using_mpi(MpiUser& user, const CommOptions& options) {
  Process& state = process();
  const std::lock_guard lock(state.mutex);
  if (state.user != nullptr) {
    throw ConfigError("mpi: this process already has an MPI communicator; share it");
  }
  if (!state.failure.empty()) {
    throw CommError(
        fmt::format("{} (earlier in this process); start the job again", state.failure));
  }
  if (state.world.comm == MPI_COMM_NULL) {
    initialise(options);
    try {
      state.world = copy_world(options);
    } catch (const CommError& error) {
      state.failure = error.what();
      throw;
    }
  }
  state.timeout = options.timeout;
  state.user = &user;
  return state.world;
}

void end_using_mpi(const std::string& failure) {
  Process& state = process();
  const std::lock_guard lock(state.mutex);
  state.user = nullptr;
  if (state.failure.empty()) state.failure = failure;
}

}  // namespace spdkfac::comm

namespace spdkfac {

void abort_job(int exit_code) {
  std::cout.flush();
  std::fflush(nullptr);
  if (comm::is_initialised()) {
    // MPI_Abort asks the launcher to end the job. End this process even if it does not answer.
    std::thread([exit_code] {
      std::this_thread::sleep_for(std::chrono::seconds(10));
      std::_Exit(exit_code);
    }).detach();
    MPI_Abort(MPI_COMM_WORLD, exit_code);
  }
  std::_Exit(exit_code);
}

}  // namespace spdkfac
