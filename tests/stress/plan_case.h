// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/plan_options.h"
#include "spdkfac/runtime/kfac_options.h"
#include "stress/random_net.h"

namespace spdkfac::stress {

// Where the plan comes from: costs; a planner whose valid plans are changed at random; a file.
enum class Source { kCosts, kChanged, kFile };

// One training of a random network on ranks that are threads. All of it follows from the seed.
struct PlanCase {
  std::uint32_t seed = 0;
  NetSpec net;
  int world = 2;
  std::int64_t examples = 3;  // of a rank in a pass
  int passes = 1;
  std::int64_t steps = 4;
  double rate = 0.02;
  double first = 1;         // a factor of all parameters at the start
  std::uint64_t order = 0;  // shuffles the examples of each batch; 0: as they are drawn
  KfacOptions kfac;
  PlanOptions plan;
  Source source = Source::kCosts;
  CostModel costs;
  std::int64_t profile_steps = 0;
  bool send_gradients = true;
  bool synchronize = false;
  std::optional<std::int64_t> discard_before;  // a batch that does not count comes before this step
  // After so many steps everything is saved, and new objects on `later_world` ranks load it.
  std::optional<std::int64_t> save_after;
  int later_world = 2;

  // The ranks of a step.
  int world_at(std::int64_t step) const {
    return save_after && step >= *save_after ? later_world : world;
  }
};

PlanCase random_plan_case(std::uint32_t seed);
std::string text_of(const PlanCase& one);

// Why a run may refuse the case with a ConfigError; nothing if it must train.
std::optional<std::string> may_refuse(const PlanCase& one);

}  // namespace spdkfac::stress
