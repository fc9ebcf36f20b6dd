// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "spdkfac/base/category.h"
#include "spdkfac/base/units.h"
#include "spdkfac/trace/trace.h"

namespace spdkfac {

// One iteration, simulated or measured.
struct IterationResult {
  Seconds iteration;                  // until the last rank is done; measured: median of `samples`
  std::vector<Seconds> inverse_load;  // simulated: seconds that each rank inverts
  double sent_bytes = 0;              // by a rank, on average
  Trace trace;                        // simulated: empty unless asked for; measured: the last step
  // From the trace.
  CategoryTimes breakdown;  // of the rank that computes longest; measured: medians
  Seconds factor_messages;  // that factors were on their way, hidden or not
  // Measured: seconds of each step on its slowest rank.
  std::vector<double> samples = {};
};

// Share of the factor messages' time that computation hides; nothing without messages.
std::optional<double> hidden_share(const IterationResult& result);

}  // namespace spdkfac
