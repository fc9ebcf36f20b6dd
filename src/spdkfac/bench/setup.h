// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "spdkfac/bench/run_bench.h"
#include "spdkfac/comm/communicator.h"
#include "spdkfac/plan/cost_model.h"
#include "spdkfac/report/record.h"
#include "spdkfac/train/ranks.h"

namespace spdkfac::bench {

// Where measured steps run and what they cost there.
struct Setup {
  const train::Ranks& ranks;
  at::Device device;
  CostModel costs;
  std::int64_t profile_steps = 0;
  // The communicator for a variant; an emulated rank has its own for each.
  std::function<std::shared_ptr<Communicator>()> communicator;

  // Whether this process stands for one of many ranks.
  bool emulated() const { return ranks.alone(); }
};

// The ranks of mpirun, or an emulated one. Writes mode, cluster and note of the record. Options
// that do not fit the number of ranks are a ConfigError.
Setup make_setup(const train::Ranks& ranks, at::Device device, const MeasuredBenchOptions& options,
                 report::RecordHead& head);

}  // namespace spdkfac::bench
