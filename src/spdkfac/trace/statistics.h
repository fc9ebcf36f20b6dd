// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace spdkfac::trace {

// The value below which `share` (0 to 1) of the samples lie, interpolated between neighbours. At
// least one sample.
double quantile(std::vector<double> samples, double share);

// Index of the sample in the middle; of two, that of the smaller. At least one sample.
std::size_t middle_sample(const std::vector<double>& samples);

struct Spread {
  double median = 0;
  double low = 0;   // first quartile
  double high = 0;  // third quartile
};
Spread spread_of(const std::vector<double>& samples);

// Where the median of what the samples come from lies, with at least 95 % confidence and whatever
// the distribution: from one ordered sample to another, by the binomial distribution. Fewer than
// six samples cannot say so much; then it is all of their range.
struct ConfidenceInterval {
  double low = 0;
  double high = 0;
};
ConfidenceInterval median_interval(std::vector<double> samples);

// How much longer the second of two things took that were measured in turn, step by step.
struct Difference {
  double median = 0;
  ConfidenceInterval interval;

  // Whether the samples cannot tell which of them is faster.
  bool none() const { return interval.low <= 0 && interval.high >= 0; }
};
Difference paired_difference(const std::vector<double>& first, const std::vector<double>& second);

}  // namespace spdkfac::trace
