// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/cli/output.h"
#include "spdkfac/cli/verbs.h"
#include "spdkfac/plan/plan_options.h"
#include "spdkfac/report/table.h"

namespace spdkfac::cli {

void add_algorithms_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("algorithms", "The named algorithms and their options");
  verb->callback([] {
    constexpr Table::Align kLeft = Table::Align::kLeft;
    Table table({{"algorithm", kLeft},
                 {"in the paper", kLeft},
                 {"factors", kLeft},
                 {"fusion", kLeft},
                 {"inverses", kLeft},
                 {"summary", kLeft}});
    for (const AlgorithmInfo& info : named_algorithms()) {
      const bool kfac = info.options.second_order();
      table.add_row({info.name, info.paper_name.empty() ? "-" : info.paper_name,
                     name_of(factor_schedule_names(), info.options.factor_schedule),
                     name_of(fusion_names(), info.options.fusion),
                     kfac ? name_of(placement_names(), info.options.placement) : "-",
                     info.summary});
    }
    table.add_row({kAutoAlgorithm, "-", "-", "-", "-",
                   "the cheapest of all K-FAC variants under the cost model"});
    print(table.text());
  });
}

}  // namespace spdkfac::cli
