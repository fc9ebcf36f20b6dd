// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/cli/inputs.h"
#include "spdkfac/cli/output.h"
#include "spdkfac/cli/verbs.h"
#include "spdkfac/plan/plan_file.h"
#include "spdkfac/report/plan_text.h"
#include "spdkfac/sim/predict.h"

namespace spdkfac::cli {
namespace {

constexpr const char* kDefault = "spd-kfac";

struct PlanVerb {
  Inputs inputs;
  bool json = false;
  bool full = false;
  std::string out;

  void run() const {
    if (json && full) throw ConfigError(conflict_text("--json", "--full"));
    const auto models = inputs.models();
    const CostModel costs = inputs.cluster();
    const int world = inputs.world(costs);
    const auto algorithms = inputs.algorithms({kDefault}, world);
    if (models.size() != 1 || algorithms.size() != 1) {
      throw ConfigError(
          fmt::format("flags: plan makes one plan (got {} models and {} algorithms); "
                      "name one of each",
                      models.size(), algorithms.size()));
    }
    const Prediction predicted =
        predict(models[0], costs, world, algorithms[0], inputs.intervals());
    if (!out.empty()) write_file_atomically(out, to_json(predicted.plan).dump(1) + "\n");
    if (json) {
      print_json(to_json(predicted.plan));
    } else if (out.empty() || full) {
      print(report::plan_text(predicted.plan, models[0], costs.for_world(world), full));
    } else {
      print(fmt::format("{}: plan {} written\n", out, predicted.plan.digest()));
    }
  }
};

}  // namespace

void add_plan_verb(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("plan", "Plan who inverts which factor and which tensors share a message");
  const auto state = std::make_shared<PlanVerb>();
  state->inputs.add_to(*verb, /*several=*/false, kDefault);
  const std::string output = "Output";
  verb->add_flag("--full", state->full, "List every message and every owner")->group(output);
  verb->add_flag("--json", state->json, "Print the plan file")->group(output);
  verb->add_option("--out", state->out, "Write the plan file; with --full or --json also print it")
      ->type_name("FILE")
      ->group(output);
  verb->footer("Example: spdkfac plan --model resnet50 --cluster paper-64x2080ti --world 64");
  verb->callback([state] { state->run(); });
}

}  // namespace spdkfac::cli
