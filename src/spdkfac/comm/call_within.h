// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "spdkfac/comm/awake_clock.h"

namespace spdkfac::comm {

// For calls of libraries that may wait without a limit: makes the call on a thread of its own and
// returns its result, or nothing when the time is up. Then the thread is left behind; should the
// call still return, `too_late` receives the result there. Neither may throw.
template <class Result>
std::optional<Result> call_within(std::chrono::milliseconds limit, std::function<Result()> call,
                                  std::function<void(Result)> too_late) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable returned;
    std::optional<Result> result;
    bool abandoned = false;
  };
  const auto shared = std::make_shared<Shared>();
  std::thread([shared, call = std::move(call), too_late = std::move(too_late)] {
    Result result = call();
    {
      const std::lock_guard lock(shared->mutex);
      if (!shared->abandoned) {
        shared->result = std::move(result);
        shared->returned.notify_all();
        return;
      }
    }
    too_late(std::move(result));
  }).detach();
  constexpr std::chrono::milliseconds kBetweenTicks{20};
  AwakeClock awake;
  std::unique_lock lock(shared->mutex);
  while (!shared->result && awake.now() < limit) {
    shared->returned.wait_for(lock, kBetweenTicks, [&] { return shared->result.has_value(); });
    awake.tick();
  }
  shared->abandoned = !shared->result;
  return std::move(shared->result);
}

}  // namespace spdkfac::comm
