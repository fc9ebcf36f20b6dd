// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/cli/inputs.h"
#include "spdkfac/cli/output.h"
#include "spdkfac/cli/verbs.h"
#include "spdkfac/report/advice_text.h"
#include "spdkfac/sim/predict.h"

namespace spdkfac::cli {
namespace {

struct AdviseVerb {
  Inputs inputs;
  bool json = false;
  bool wide = false;
  std::string out;

  sim::Scenario scenario() const {
    const auto models = inputs.models();
    const CostModel costs = inputs.cluster();
    const int world = inputs.world(costs);
    const auto algorithms = inputs.algorithms({kAutoAlgorithm}, world);
    if (models.size() != 1 || algorithms.size() != 1) {
      throw ConfigError(fmt::format(
          "flags: advise examines one plan (got {} models and {} algorithms); name one of each",
          models.size(), algorithms.size()));
    }
    if (!algorithms[0].second_order()) {
      throw ConfigError(
          fmt::format("flags: advise needs K-FAC (got algorithm={}, factor_schedule=none); choose "
                      "a K-FAC algorithm, or auto",
                      algorithms[0].algorithm));
    }
    require_trainable(algorithms[0]);
    return {models[0], costs, world, algorithms[0], inputs.intervals()};
  }

  // All algorithms as they are named, with the intervals given; and the one to judge, which flags
  // may vary.
  void predict_all(report::AdviceReport& report) const {
    const sim::Scenario& s = report.scenario;
    const std::vector<std::string> names = compared_algorithms();
    Progress progress("simulating", names.size());
    for (const std::string& name : names) {
      const PlanOptions options = preset(name);
      Prediction one = predict(s.model, s.costs, s.world, options, s.intervals);
      one.result.trace = Trace();  // of many ranks it is large, and nobody looks at it
      if (options == s.options) report.judged = one;
      report.algorithms.push_back(std::move(one));
      progress.advance();
    }
    if (report.judged.plan.algorithm.empty()) {
      report.judged = predict(s.model, s.costs, s.world, s.options, s.intervals);
    }
  }

  void run() const {
    if (json && wide) throw ConfigError(conflict_text("--json", "--wide"));
    report::AdviceReport report;
    report.scenario = scenario();
    predict_all(report);
    {
      std::optional<Progress> progress;
      report.advice = sim::advise(report.scenario, [&](std::size_t, std::size_t of) {
        if (!progress) progress.emplace("simulating changes", of);
        progress->advance();
      });
    }
    const Json document = to_json(report);
    if (!out.empty()) write_file_atomically(out, document.dump(1) + "\n");
    if (json) {
      print_json(document);
    } else {
      print(to_text(report, wide));
    }
  }
};

}  // namespace

void add_advise_verb(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("advise", "Show what limits an iteration and what would help");
  const auto state = std::make_shared<AdviseVerb>();
  state->inputs.add_to(*verb, /*several=*/false, kAutoAlgorithm);
  const std::string output = "Output";
  verb->add_flag("--json", state->json, "Print the advice as JSON")->group(output);
  verb->add_flag("--wide", state->wide, "Show all columns of the tables")->group(output);
  verb->add_option("--out", state->out, "Also write the advice as JSON")
      ->type_name("FILE")
      ->group(output);
  verb->footer("Example: spdkfac advise --model resnet50 --cluster paper-64x2080ti --world 64");
  verb->callback([state] { state->run(); });
}

}  // namespace spdkfac::cli
