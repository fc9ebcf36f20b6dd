// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "spdkfac/base/units.h"
#include "spdkfac/plan/plan_options.h"
#include "spdkfac/report/model_figures.h"

namespace spdkfac::bench {

// What the paper prints, from data/paper.json; nothing where it prints nothing.

// The iteration time of a preset on its cluster and number of workers.
std::optional<Seconds> paper_iteration(const std::string& cluster, int world,
                                       const std::string& model, const PlanOptions& options);
// A model's row in its table.
std::optional<report::PaperModel> paper_model(const std::string& model);

}  // namespace spdkfac::bench
