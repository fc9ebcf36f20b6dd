// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "spdkfac/calibrate/timing.h"
#include "spdkfac/plan/fit.h"

namespace spdkfac::calibrate {

// Shares of the speed alone, from 0.01, the least that a cluster file holds, to 1.
struct RatesTogether {
  double computation = 1;    // of products while all-reduces keep the channel busy
  double communication = 1;  // of all-reduces while ranks compute
};

// Measures them in rounds of three loops: products alone, messages alone, both together. All ranks
// do so together.
class ContentionMeter {
 public:
  // `all_reduce`: what messages take, sizes increasing.
  ContentionMeter(const Bench& bench, std::span<const plan::Measurement> all_reduce);
  ~ContentionMeter();

  // The first is for warming up.
  void round();
  // Medians of the rounds, each by the rank that is last; the same on all ranks.
  RatesTogether rates() const;

  // About how long so many rounds take, and for how many samples they advance the bench.
  static Seconds estimate(int rounds);
  static std::size_t samples(int rounds);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// What takes `alone` seconds takes `together` seconds when something else goes on at the same time
// for the first `busy` of them: in those, work is done at this rate.
double rate_while_busy(Seconds alone, Seconds together, Seconds busy);

}  // namespace spdkfac::calibrate
