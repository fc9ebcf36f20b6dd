// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include <c10/core/Device.h>

#include "spdkfac/comm/communicator.h"
#include "spdkfac/plan/layer_spec.h"

namespace spdkfac::runtime {

// What a rank has measured in some steps of a run.
struct RankProfile {
  // The three parts of a step behind which ranks wait for each other.
  enum Part { kPasses, kInverses, kPreconditioning };
  static constexpr std::size_t kParts = 3;

  std::vector<LayerTimes> layers;                  // means over the steps
  std::vector<std::array<Seconds, kParts>> steps;  // what each took in all
};

// What each rank has measured; all ranks call it.
std::vector<RankProfile> profiles_of_ranks(const RankProfile& mine, Communicator& communicator,
                                           c10::Device device);

// The means of what ranks have measured; of preconditioning and inverses, those of the ranks that
// did it.
std::vector<LayerTimes> mean_times(const std::vector<RankProfile>& ranks);

// How long each part of each step took each rank, against the means; by step, then by rank.
std::vector<std::vector<Slowness>> slowness_of_steps(const std::vector<RankProfile>& ranks);

// The means, and each part of a step set to what the slowest rank took in it, the median of the
// steps: all others wait for it.
std::vector<LayerTimes> joined_times(const std::vector<RankProfile>& ranks);

}  // namespace spdkfac::runtime
