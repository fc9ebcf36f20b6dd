// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/train/learning_rate.h"

#include <cmath>
#include <numbers>

namespace spdkfac::train {

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> kNames = {"constant", "cosine", "step"};
  return kNames;
}

double learning_rate_at(const LearningRate& rate, std::int64_t step) {
  const auto ratio = [](std::int64_t a, std::int64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
  };
  if (step < rate.warmup_steps) return rate.base * ratio(step + 1, rate.warmup_steps);
  switch (rate.schedule) {
    case Schedule::kCosine: {
      const double done = ratio(step - rate.warmup_steps, rate.total_steps - rate.warmup_steps);
      return rate.base * 0.5 * (1 + std::cos(std::numbers::pi * done));
    }
    case Schedule::kStep:
      if (4 * step >= 3 * rate.total_steps) return rate.base * 0.01;
      return 2 * step >= rate.total_steps ? rate.base * 0.1 : rate.base;
    case Schedule::kConstant:
      break;
  }
  return rate.base;
}

}  // namespace spdkfac::train
