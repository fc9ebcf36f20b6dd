// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "spdkfac/base/json.h"
#include "spdkfac/report/prediction.h"
#include "spdkfac/sim/advice.h"

namespace spdkfac::report {

// All that `advise` says of one scenario.
struct AdviceReport {
  sim::Scenario scenario;
  sim::Advice advice;
  Prediction judged;                   // the plan that the advice is about
  std::vector<Prediction> algorithms;  // all of them, `auto` last
};

// Tables have all columns if `wide`.
std::string to_text(const AdviceReport& report, bool wide = false);
// docs/formats.md, "Advice".
Json to_json(const AdviceReport& report);

}  // namespace spdkfac::report
