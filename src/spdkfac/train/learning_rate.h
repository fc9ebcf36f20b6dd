// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spdkfac::train {

// kCosine falls to zero along half a cosine; kStep falls to a tenth after half of the steps and to
// a hundredth after three quarters.
enum class Schedule { kConstant, kCosine, kStep };
const std::vector<std::string>& schedule_names();  // constant, cosine, step

struct LearningRate {
  double base = 0;
  Schedule schedule = Schedule::kConstant;
  std::int64_t warmup_steps = 0;  // rises in equal steps to `base`, which the last of them reaches
  std::int64_t total_steps = 1;   // of the run, warm-up included
};

// Of the update that follows `step` earlier ones.
double learning_rate_at(const LearningRate& rate, std::int64_t step);

}  // namespace spdkfac::train
