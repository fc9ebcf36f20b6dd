// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "spdkfac/base/units.h"
#include "spdkfac/comm/communicator.h"

namespace spdkfac::calibrate {

// Something to be timed.
struct Task {
  std::string name;
  std::function<void()> run;
  std::function<void()> finish = {};  // after a sample, not timed; may be empty
  // How often a sample runs it: more than once where one run is too short for ranks to meet.
  std::int64_t calls = 1;
  // The time that the calling thread has run, not that of the clock: of work that goes on behind
  // it.
  bool own_time = false;
  // Ranks do not wait for each other in it: a sample is the mean of theirs, not that of the
  // slowest.
  bool each_for_itself = false;
};

// Where tasks are timed: all ranks run the same ones at the same time, each on its device.
struct Bench {
  Communicator& communicator;
  c10::Device device;
  std::function<void()> advance = {};  // called after every sample; may be empty
  bool shared_cores = false;           // ranks take turns on the cores of a CPU
};

// Waits until the device has done everything that was queued.
void wait_for_device(c10::Device device);

// Seconds of one run of each task, the same on all ranks. Rounds go over all tasks, each in another
// order, so that a slow moment of the machine hits all of them; the first round is left out. Before
// each sample the ranks meet; a sample is that of the slowest rank, unless the task says otherwise.
// The result is the median of `repetitions` samples.
std::vector<Seconds> measure(const Bench& bench, std::span<const Task> tasks, int repetitions);

}  // namespace spdkfac::calibrate
