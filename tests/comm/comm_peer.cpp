// SPDX-License-Identifier: Apache-2.0
// One rank of failure_test.py: all ranks work together, then rank 1 does what --fault says while
// the others continue.
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>

#include <ATen/ATen.h>
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "spdkfac/base/error.h"
#include "spdkfac/comm/mpi.h"

namespace spdkfac {
namespace {

constexpr int kFaultyRank = 1;

struct Options {
  std::string fault = "none";
  double timeout = 3;
  double seconds = 0;
};

void say(const std::string& line) { std::cout << line + "\n" << std::flush; }

void work_together(Communicator& comm, const std::string& what) {
  const at::Tensor ones = at::ones({1000});
  comm.all_reduce_async(ones, what).wait();
  if (ones[0].item<float>() != static_cast<float>(comm.size())) throw Error("a wrong sum");
}

// What the faulty rank does instead of continuing.
void be_faulty(Communicator& comm, const std::string& fault) {
  if (fault == "kill") raise(SIGKILL);
  if (fault == "stop") raise(SIGSTOP);
  if (fault == "exit") std::exit(0);
  if (fault == "silent") std::this_thread::sleep_for(std::chrono::hours(1));
  if (fault == "throw") throw ConfigError("peer: this rank alone has no data; give it some");
  if (fault.ends_with("-busy")) {
    const Work work = comm.all_reduce_async(at::ones({10}), "left behind");
    if (fault == "throw-busy") throw ConfigError("peer: this rank alone has no data; give it some");
    if (fault == "exit-busy") std::exit(0);
  }
  if (fault == "other-size") comm.all_reduce_async(at::ones({10}), "another size").wait();
  if (fault == "other-operation") comm.broadcast_async(at::ones({1000}), 1, "a broadcast").wait();
}

// Known before the communicator is made.
bool is_faulty_by_launcher() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank != nullptr && std::atoi(rank) == kFaultyRank;
}

void run(const Options& options) {
  if (options.fault == "stop-at-start" && is_faulty_by_launcher()) {
    say(fmt::format("rank {} pid {}", kFaultyRank, getpid()));
    raise(SIGSTOP);
  }
  const auto timeout = std::chrono::milliseconds(static_cast<int>(1000 * options.timeout));
  const auto comm = make_mpi_communicator({.timeout = timeout, .max_piece_elements = 1 << 30});
  say(fmt::format("rank {} pid {}", comm->rank(), getpid()));
  work_together(*comm, "before the fault");
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(options.seconds);
  const at::Tensor go_on = at::ones({1});
  while (options.seconds > 0 && go_on.item<float>() > 0) {
    work_together(*comm, "at work");
    go_on.fill_(std::chrono::steady_clock::now() < end ? 1 : 0);
    comm->broadcast_async(go_on, 0, "whether to go on").wait();
  }
  if (options.fault == "none") return;
  if (comm->rank() == kFaultyRank) {
    be_faulty(*comm, options.fault);
    if (options.fault == "return") return;
  }
  work_together(*comm, "after the fault");
  comm->barrier("end");
}

}  // namespace
}  // namespace spdkfac

int main(int argc, char** argv) {
  spdkfac::Options options;
  CLI::App app("One rank of tests/comm/failure_test.py");
  app.add_option("--fault", options.fault);
  app.add_option("--timeout", options.timeout);
  app.add_option("--seconds", options.seconds);
  CLI11_PARSE(app, argc, argv);
  try {
    spdkfac::run(options);
    spdkfac::say("good end");
    return 0;
  } catch (const std::exception& error) {
    std::cerr << fmt::format("comm_peer: {}\n", error.what()) << std::flush;
    spdkfac::abort_job(1);
  }
}
