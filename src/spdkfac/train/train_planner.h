// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "spdkfac/runtime/distribution.h"
#include "spdkfac/train/ranks.h"
#include "spdkfac/train/train_options.h"

namespace spdkfac::train {

// The named cluster, the file, or the paper's.
CostModel simulated_cluster(const RankOptions& options);

// What this cluster costs: of the named cluster or file, which must be for as many ranks, or of a
// quick calibration. `say` is told which.
CostModel costs_of_ranks(const RankOptions& options, const Ranks& ranks, at::Device device,
                         const std::function<void(const std::string&)>& say);

// How the ranks of a run share the work: the plan of a file, or plans for the costs of a cluster
// file, or for those of a quick calibration. Files for another number of ranks are ConfigErrors, as
// are files and costs for one rank.
Distribution make_distribution(const TrainOptions& options, const Ranks& ranks, at::Device device,
                               const std::function<void(const std::string&)>& say);

}  // namespace spdkfac::train
