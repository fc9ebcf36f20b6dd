// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/replayed_steps.h"

#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace spdkfac {
namespace {

using runtime::ReplayedSteps;

constexpr std::size_t kReplayLayers = 3;
constexpr int kReplayedFor = 80;

// What a step queues on the device, by layer.
struct Queued {
  std::vector<bool> averaged = std::vector<bool>(kReplayLayers);
  std::vector<bool> inverted = std::vector<bool>(kReplayLayers);
  bool operator==(const Queued&) const = default;
};

// As the executor decides: factors of the layers that were called, then inverses of all whose
// averages have changed.
Queued queue_step(bool factors, bool inverses, const std::vector<bool>& called,
                  std::vector<bool>& stale) {
  Queued queued;
  for (std::size_t layer = 0; layer < kReplayLayers; ++layer) {
    queued.averaged[layer] = factors && called[layer];
    if (queued.averaged[layer]) stale[layer] = true;
    queued.inverted[layer] = inverses && stale[layer];
    if (queued.inverted[layer]) stale[layer] = false;
  }
  return queued;
}

// Runs each variant when it comes first, records it when it comes again, then replays it.
void expect_replays_do_the_same(int factor_interval, int inverse_interval) {
  const std::vector<bool> called = {true, true, false};  // a layer that is never called
  std::vector<bool> plain(kReplayLayers);
  std::vector<bool> host(kReplayLayers);
  ReplayedSteps replays;
  std::map<int, int> times;
  std::map<int, Queued> recorded;
  for (int step = 0; step < kReplayedFor; ++step) {
    const bool factors = step % factor_interval == 0;
    const bool inverses = step % inverse_interval == 0;
    const Queued expected = queue_step(factors, inverses, called, plain);
    const int variant = replays.variant(factors, inverses, host);
    if (++times[variant] <= 2) {
      recorded[variant] = queue_step(factors, inverses, called, host);
      replays.ran(variant, {.made = {}, .averaged = recorded[variant].averaged, .stale = host});
    } else {
      host = replays.replayed(variant, host).stale;
    }
    ASSERT_EQ(recorded[variant], expected) << "step " << step;
    ASSERT_EQ(host, plain) << "step " << step;
  }
}

TEST(ReplayedSteps, QueueWhatStepsWouldWhateverTheIntervals) {
  for (int factors = 1; factors <= 7; ++factors) {
    for (int inverses = 1; inverses <= 7; ++inverses) {
      SCOPED_TRACE(fmt::format("factors every {}, inverses every {}", factors, inverses));
      expect_replays_do_the_same(factors, inverses);
    }
  }
}

TEST(ReplayedSteps, AreFewKinds) {
  ReplayedSteps replays;
  EXPECT_EQ(replays.variant(true, false, {true, false}),
            replays.variant(true, false, {false, true}))
      << "only inversions ask what is stale";
  EXPECT_NE(replays.variant(false, true, {true}), replays.variant(false, true, {false}));
  EXPECT_NE(replays.variant(false, false, {true}), replays.variant(true, false, {true}));
}

}  // namespace
}  // namespace spdkfac
