// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <memory>
#include <sstream>

#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/base/json.h"
#include "spdkfac/cli/inputs.h"
#include "spdkfac/cli/output.h"
#include "spdkfac/cli/verbs.h"
#include "spdkfac/report/prediction.h"

namespace spdkfac::cli {
namespace {

constexpr const char* kDefaultAlgorithm = "spd-kfac";

// "3:1.5" → worker 3 computes 1.5 times as long.
std::pair<int, double> parse_slow(const std::string& text) {
  const std::size_t colon = text.find(':');
  const auto rank = whole_number<int>(std::string_view(text).substr(0, colon));
  const auto factor = colon == std::string::npos
                          ? std::nullopt
                          : whole_number<double>(std::string_view(text).substr(colon + 1));
  if (!rank || !factor || !(*factor > 0) || !(*factor < 1e6)) {
    throw ConfigError(fmt::format(
        "flags: --slow {} is not RANK:FACTOR with 0 < FACTOR < 1000000; for example --slow 3:1.5",
        text));
  }
  return {*rank, *factor};
}

// "1..1024" → 1, 2, 4, …, 1024; the ends are always there.
std::vector<int> parse_sweep(const std::string& text) {
  const std::size_t dots = text.find("..");
  const auto first = whole_number<int>(std::string_view(text).substr(0, dots));
  const auto last = dots == std::string::npos
                        ? std::nullopt
                        : whole_number<int>(std::string_view(text).substr(dots + 2));
  if (!first || !last || *first < 1 || *last < *first || *last > kMaxWorld) {
    throw ConfigError(
        fmt::format("flags: --sweep-world {} is not FIRST..LAST with 1 ≤ FIRST ≤ LAST ≤ {}; for "
                    "example --sweep-world 1..1024",
                    text, kMaxWorld));
  }
  std::vector<int> worlds;
  for (int world = *first; world < *last; world *= 2) worlds.push_back(world);
  worlds.push_back(*last);
  return worlds;
}

struct SimulateVerb {
  Inputs inputs;
  bool compare = false;
  bool all_methods = false;
  bool json = false;
  bool csv = false;
  bool wide = false;
  std::string out;
  std::string trace;
  std::string sweep;
  std::string plan;
  std::vector<std::string> slow;
  double jitter = 0;
  std::uint64_t seed = 0;

  SimulationOptions simulation() const {
    SimulationOptions options;
    for (const std::string& text : slow) {
      const auto [rank, factor] = parse_slow(text);
      if (!options.slow.emplace(rank, factor).second) {
        throw ConfigError(
            fmt::format("flags: --slow names rank {} twice; give each rank one factor", rank));
      }
    }
    options.jitter = jitter;
    options.seed = seed;
    return options;
  }

  void run() const {
    check_flags();
    const auto models = inputs.models();
    const CostModel costs = inputs.cluster();
    if (!plan.empty()) {
      run_plan(models, costs);
    } else if (!sweep.empty()) {
      const auto worlds = parse_sweep(sweep);
      run_many(models, costs, worlds,
               inputs.algorithms({"sgd", "d-kfac", "mpd-kfac", "spd-kfac", kAutoAlgorithm},
                                 worlds.back()),
               {inputs.intervals()}, true);
    } else {
      const auto otherwise =
          compare ? compared_algorithms(all_methods) : std::vector<std::string>{kDefaultAlgorithm};
      const int world = inputs.world(costs);
      run_many(models, costs, {world}, inputs.algorithms(otherwise, world),
               compare ? inputs.compared_intervals() : std::vector{inputs.intervals()}, false);
    }
  }

  void check_flags() const {
    const auto conflict = [](bool both, const std::string& first, const std::string& second) {
      if (both) throw ConfigError(conflict_text(first, second));
    };
    if (!plan.empty()) {
      for (const std::string& flag :
           inputs.given({"--world", "--algorithm", "--factor-schedule", "--fusion",
                         "--threshold-bytes", "--placement", "--balance-by", "--factor-reduce",
                         "--exchange", "--replicate-below", "--owners", "--method",
                         "--gradient-workers", "--factor-interval", "--inverse-interval",
                         "--interval", "--over-steps", "--spread-refreshes", "--solver"})) {
        conflict(true, "--plan", flag);
      }
    }
    conflict(!sweep.empty() && !inputs.given({"--world"}).empty(), "--sweep-world", "--world");
    if (all_methods && !compare) {
      throw ConfigError("flags: --all-methods needs --compare; add it, or remove --all-methods");
    }
    conflict(compare && !sweep.empty(), "--compare", "--sweep-world");
    conflict(compare && !inputs.given({"--algorithm"}).empty(), "--compare", "--algorithm");
    conflict(json && csv, "--json", "--csv");
    conflict(wide && !sweep.empty(), "--wide", "--sweep-world");
    conflict(wide && (json || csv), "--wide", json ? "--json" : "--csv");
    if (!inputs.given({"--seed"}).empty() && inputs.given({"--jitter"}).empty()) {
      throw ConfigError("flags: --seed needs --jitter; add it, or remove --seed");
    }
    conflict(!plan.empty() && compare, "--plan", "--compare");
    conflict(!plan.empty() && !sweep.empty(), "--plan", "--sweep-world");
    conflict(!sweep.empty() && !slow.empty(), "--sweep-world", "--slow");
    conflict(!sweep.empty() && !trace.empty(), "--sweep-world", "--trace");
  }

  void write_trace(const Trace& events) const {
    if (trace.empty()) return;
    std::ostringstream text;
    events.write_perfetto(text);
    write_file_atomically(trace, text.str());
  }

  void run_plan(const std::vector<ModelSpec>& models, const CostModel& costs) const {
    if (models.size() != 1) {
      throw ConfigError(
          fmt::format("flags: --plan needs one model (got {}); name one", models.size()));
    }
    Plan given = read_plan(plan);
    validate_against(given, models[0], plan);
    const Prediction one = predict(models[0], costs, std::move(given), simulation());
    write_trace(one.result.trace);
    write_out({one});
    show({one}, false);
  }

  void run_many(const std::vector<ModelSpec>& models, const CostModel& costs,
                const std::vector<int>& worlds, const std::vector<PlanOptions>& algorithms,
                const std::vector<RefreshIntervals>& intervals, bool scaling) const {
    const SimulationOptions options = simulation();
    if (!trace.empty() && models.size() * algorithms.size() != 1) {
      throw ConfigError(
          fmt::format("flags: --trace writes one iteration (got {} models and {} "
                      "algorithms); name one of each",
                      models.size(), algorithms.size()));
    }
    std::vector<std::vector<Prediction>> by_model;
    {
      Progress progress("simulating",
                        models.size() * worlds.size() * intervals.size() * algorithms.size());
      for (const ModelSpec& model : models) {
        std::vector<Prediction>& predictions = by_model.emplace_back();
        for (const int world : worlds) {
          for (const RefreshIntervals& renewed : intervals) {
            for (const PlanOptions& algorithm : algorithms) {
              Prediction one = predict(model, costs, world, algorithm, renewed, options);
              write_trace(one.result.trace);
              one.result.trace = Trace();  // those of a sweep would fill the memory
              predictions.push_back(std::move(one));
              progress.advance();
            }
          }
        }
      }
    }
    std::vector<Prediction> all;
    for (const auto& predictions : by_model) {
      all.insert(all.end(), predictions.begin(), predictions.end());
    }
    write_out(all);
    if (json || csv) {
      show(all, scaling);
      return;
    }
    for (std::size_t i = 0; i < by_model.size(); ++i) {
      if (i > 0) print("\n");
      show(by_model[i], scaling);
    }
  }

  static Json list_of(const std::vector<Prediction>& predictions) {
    Json list = Json::array();
    for (const Prediction& prediction : predictions) list.push_back(report::to_json(prediction));
    return list;
  }

  void write_out(const std::vector<Prediction>& predictions) const {
    if (out.empty()) return;
    write_file_atomically(out, out.ends_with(".csv") ? report::comparison_csv(predictions)
                                                     : list_of(predictions).dump(1) + "\n");
  }

  void show(const std::vector<Prediction>& predictions, bool scaling) const {
    if (json) {
      print_json(list_of(predictions));
    } else if (csv) {
      print(report::comparison_csv(predictions));
    } else if (scaling) {
      print(report::scaling_text(predictions));
    } else if (compare || wide || predictions.size() > 1) {
      print(report::comparison_text(predictions, wide));
    } else {
      print(report::describe(predictions.front()));
    }
  }
};

}  // namespace

void add_simulate_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("simulate", "Forecast an iteration on a cluster");
  const auto state = std::make_shared<SimulateVerb>();
  state->inputs.add_to(*verb, /*several=*/true, kDefaultAlgorithm);
  const std::string what = "What to simulate";
  verb->add_flag("--compare", state->compare,
                 "Compare all algorithms, renewing in every step and every 10 and 100 steps")
      ->group(what);
  verb->add_flag("--all-methods", state->all_methods,
                 "Compare with KAISA, DP-KFAC, Shampoo, SOAP and Muon, too; with --compare")
      ->group(what);
  verb->add_option("--sweep-world", state->sweep, "Doubling numbers of ranks, such as 1..1024")
      ->type_name("A..B")
      ->group(what);
  verb->add_option("--plan", state->plan, "Follow a plan file instead of an algorithm")
      ->type_name("FILE")
      ->group(what);
  verb->add_option("--slow", state->slow, "Make a rank compute FACTOR times as long; repeatable")
      ->type_name("RANK:FACTOR")
      ->expected(1)
      ->take_all()
      ->group(what);
  verb->add_option("--jitter", state->jitter,
                   "Vary the time of each task by up to this share (default 0)")
      ->check(number(0, 0.99))
      ->type_name("SHARE")
      ->group(what);
  verb->add_option("--seed", state->seed, "Random seed for --jitter (default 0)")
      ->check(count(0, std::numeric_limits<std::int64_t>::max()))
      ->type_name("N")
      ->group(what);
  const std::string output = "Output";
  verb->add_flag("--json", state->json, "Print predictions as a JSON array")->group(output);
  verb->add_flag("--csv", state->csv, "Print predictions as CSV")->group(output);
  verb->add_flag("--wide", state->wide, "Show a table with all columns")->group(output);
  verb->add_option("--out", state->out,
                   "Also write the predictions as JSON, or as CSV to a file named *.csv")
      ->type_name("FILE")
      ->group(output);
  verb->add_option("--trace", state->trace, "Write a trace for ui.perfetto.dev")
      ->type_name("FILE")
      ->group(output);
  verb->footer(
      "Example: spdkfac simulate --compare --model resnet50 --cluster paper-64x2080ti --world 64");
  verb->callback([state] { state->run(); });
}

}  // namespace spdkfac::cli
