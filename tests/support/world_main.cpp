// SPDX-License-Identifier: Apache-2.0
// main() of test programs with ranks. Every rank prints its failures with its number; rank 0 says
// which test runs.
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "spdkfac/comm/mpi.h"
#include "support/world.h"

namespace spdkfac::support {
namespace {

std::shared_ptr<Communicator>& current_world() {
  static std::shared_ptr<Communicator> current;
  return current;
}

class RankPrinter final : public testing::EmptyTestEventListener {
 public:
  RankPrinter(int rank, int size)
      : rank_(rank), prefix_(fmt::format("[rank {}/{}] ", rank, size)) {}

 private:
  void OnTestStart(const testing::TestInfo& test) override {
    test_ = fmt::format("{}.{}", test.test_suite_name(), test.name());
    if (rank_ == 0) say("run " + test_);
  }
  // GoogleTest holds a lock here: it cannot be asked for the test.
  void OnTestPartResult(const testing::TestPartResult& result) override {
    const char* file = result.file_name() == nullptr ? "?" : result.file_name();
    if (result.failed()) {
      say(fmt::format("FAILURE in {} at {}:{}\n{}", test_, file, result.line_number(),
                      result.message()));
    }
    if (result.skipped() && rank_ == 0) say(fmt::format("skipped: {}", result.message()));
  }
  void OnTestProgramEnd(const testing::UnitTest& all) override {
    if (rank_ != 0 && all.Passed()) return;
    say(fmt::format("{} tests passed, {} failed, {} skipped in {} ms", all.successful_test_count(),
                    all.failed_test_count(), all.skipped_test_count(), all.elapsed_time()));
  }

  void say(const std::string& text) const {
    std::istringstream lines(text);
    std::string all;
    for (std::string line; std::getline(lines, line);) all += prefix_ + line + '\n';
    std::cout << all << std::flush;
  }

  int rank_;
  std::string prefix_;
  std::string test_ = "no test";
};

}  // namespace

std::shared_ptr<Communicator> world_with(const CommOptions& options) {
  drop_world();
  current_world() = launched_by_mpi() ? make_mpi_communicator(options) : make_local_communicator();
  return current_world();
}

std::shared_ptr<Communicator> world() {
  if (!current_world()) world_with({});
  return current_world();
}

void drop_world() { current_world().reset(); }

}  // namespace spdkfac::support

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  try {
    const auto world = spdkfac::support::world();
    if (world->size() > 1) {
      auto& listeners = testing::UnitTest::GetInstance()->listeners();
      delete listeners.Release(listeners.default_result_printer());
      listeners.Append(new spdkfac::support::RankPrinter(world->rank(), world->size()));
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    spdkfac::abort_job(1);
  }
  const int result = RUN_ALL_TESTS();
  spdkfac::support::drop_world();
  return result;
}
