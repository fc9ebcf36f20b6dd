// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/root_work.h"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include "spdkfac/base/error.h"
#include "spdkfac/comm/threads.h"

namespace spdkfac {
namespace {

using namespace std::chrono_literals;

constexpr int kRootWorkRanks = 3;
const CommOptions kImpatient{.timeout = 3s};
constexpr std::chrono::milliseconds kBeat = 250ms;
constexpr std::chrono::milliseconds kSlow = 4500ms;  // longer than the timeout

TEST(RootWork, MayTakeLongerThanTheTimeout) {
  std::atomic<int> done = 0;
  run_ranks(
      kRootWorkRanks,
      [&](const std::shared_ptr<Communicator>& communicator) {
        comm::run_on_rank_zero(*communicator, kBeat, "slow work", [&] {
          std::this_thread::sleep_for(kSlow);
          ++done;
        });
        EXPECT_EQ(done, 1);  // on every rank when it returns
      },
      kImpatient);
}

TEST(RootWork, WithoutBeatsWouldEndTheJob) {
  // The same wait in a plain operation: what the beats are for.
  EXPECT_THROW(run_ranks(
                   2,
                   [&](const std::shared_ptr<Communicator>& communicator) {
                     if (communicator->rank() == 0) std::this_thread::sleep_for(kSlow);
                     communicator->barrier("after slow work");
                   },
                   kImpatient),
               CommError);
}

TEST(RootWork, OfADeadRankIsNoticed) {
  std::atomic<int> noticed = 0;
  EXPECT_THROW(run_ranks(
                   kRootWorkRanks,
                   [&](const std::shared_ptr<Communicator>& communicator) {
                     if (communicator->rank() == 0) throw std::runtime_error("dead");
                     try {
                       comm::run_on_rank_zero(*communicator, kBeat, "work", [] {});
                     } catch (const CommError&) {
                       ++noticed;
                     }
                   },
                   kImpatient),
               std::runtime_error);
  EXPECT_EQ(noticed, kRootWorkRanks - 1);
}

TEST(RootWork, ThatFailsIsAnErrorOnAllRanks) {
  std::atomic<int> told = 0;
  run_ranks(
      kRootWorkRanks,
      [&](const std::shared_ptr<Communicator>& communicator) {
        const auto run = [&] {
          comm::run_on_rank_zero(*communicator, kBeat, "saving",
                                 [] { throw ConfigError("disk: full"); });
        };
        try {
          run();
        } catch (const ConfigError& error) {
          EXPECT_EQ(communicator->rank(), 0);
          EXPECT_STREQ(error.what(), "disk: full");
          ++told;
        } catch (const CommError& error) {
          EXPECT_STREQ(error.what(), "saving: failed on rank 0, whose message says why");
          ++told;
        }
        communicator->barrier("and they go on");
      },
      kImpatient);
  EXPECT_EQ(told, kRootWorkRanks);
}

}  // namespace
}  // namespace spdkfac
