// SPDX-License-Identifier: Apache-2.0
// The verbs that list what comes with the program: models, clusters, algorithms.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spdkfac/base/data_files.h"
#include "spdkfac/base/json.h"
#include "spdkfac/cli/output.h"
#include "spdkfac/cli/verbs.h"
#include "spdkfac/plan/cluster_file.h"
#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/plan/model_file.h"
#include "spdkfac/plan/plan_options.h"
#include "spdkfac/plan/plan_options_file.h"
#include "spdkfac/report/layer_table.h"
#include "spdkfac/report/number_text.h"
#include "spdkfac/report/table.h"

namespace spdkfac::cli {
namespace {

constexpr const char* kOutHelp = "Also write what --json prints to this file";
constexpr report::Table::Align kLeft = report::Table::Align::kLeft;

// What a verb over bundled files does: list all, for people or as JSON, show one, print one as a
// file.
struct Listing {
  std::function<void()> list;
  std::function<Json()> list_json;
  std::function<void(const std::string& name)> show;
  std::function<Json(const std::string& name)> json;
};

// Prints a document as JSON if that is wanted, and writes it to a file if one is named.
void give_json(const Json& document, bool json, const std::string& out) {
  if (!out.empty()) write_file_atomically(out, document.dump(1) + "\n");
  if (json) print_json(document);
}

// Adds `verb [NAME] [--json] [--out FILE]`.
void add_listing_verb(CLI::App& app, const std::string& verb, const std::string& help,
                      const std::string& name_help, Listing listing) {
  struct State {
    std::string name;
    bool json = false;
    std::string out;
  };
  const auto state = std::make_shared<State>();
  CLI::App* command = app.add_subcommand(verb, help);
  command->add_option("name", state->name, name_help)->type_name("NAME");
  command->add_flag("--json", state->json,
                    "Print the file; without a name, an array of what is listed");
  command->add_option("--out", state->out, kOutHelp)->type_name("FILE");
  command->callback([state, listing = std::move(listing)] {
    if (state->json || !state->out.empty()) {
      give_json(state->name.empty() ? listing.list_json() : listing.json(state->name), state->json,
                state->out);
    }
    if (state->json) return;
    if (state->name.empty()) {
      listing.list();
    } else {
      listing.show(state->name);
    }
  });
}

std::string millions(std::int64_t count) {
  return fmt::format("{:.3f}", static_cast<double>(count) / 1e6);
}

struct Totals {
  std::int64_t a = 0;
  std::int64_t g = 0;
  std::int64_t largest = 0;
};

Totals totals_of(const ModelSpec& model) {
  Totals totals;
  for (const LayerSpec& layer : model.layers) {
    const FactorShape a = layer.shape(FactorSide::kA);
    const FactorShape g = layer.shape(FactorSide::kG);
    totals.a += a.packed();
    totals.g += g.packed();
    totals.largest = std::max({totals.largest, a.dim(), g.dim()});
  }
  return totals;
}

void list_models() {
  report::Table table({{"model", kLeft},
                       {"layers"},
                       {"batch"},
                       {"input", kLeft},
                       {"M parameters"},
                       {"M elements of A"},
                       {"of G"},
                       {"largest dimension"}});
  for (const std::string& name : data_names("models")) {
    const ModelSpec model = read_model(data_file("models", name));
    const Totals totals = totals_of(model);
    table.add_row({model.name, std::to_string(model.layers.size()), std::to_string(model.batch),
                   fmt::format("{}", fmt::join(model.input, "x")), millions(model.parameters),
                   millions(totals.a), millions(totals.g), std::to_string(totals.largest)});
  }
  print(table.text() + "Elements count the upper triangles, which are what is sent.\n");
}

Json models_json() {
  Json list = Json::array();
  for (const std::string& name : data_names("models")) {
    const ModelSpec model = read_model(data_file("models", name));
    const Totals totals = totals_of(model);
    list.push_back({{"name", model.name},
                    {"layers", model.layers.size()},
                    {"batch", model.batch},
                    {"input", model.input},
                    {"parameters", model.parameters},
                    {"elements_of_a", totals.a},
                    {"elements_of_g", totals.g},
                    {"largest_dimension", totals.largest}});
  }
  return list;
}

std::string ms(Seconds time) { return report::milliseconds(time, 3); }

void list_clusters() {
  constexpr std::int64_t kMillion = 1'000'000;
  report::Table table({{"cluster", kLeft},
                       {"ranks"},
                       {"all-reduce start ms"},
                       {"1 M ms"},
                       {"broadcast 1 M ms"},
                       {"inverse 1024 ms"},
                       {"4096 ms"}});
  for (const std::string& name : data_names("clusters")) {
    const CostModel costs = read_cluster(data_file("clusters", name));
    table.add_row({costs.name, std::to_string(costs.world), ms(costs.all_reduce.startup()),
                   ms(costs.all_reduce.time(kMillion)), ms(costs.broadcast.time(kMillion)),
                   ms(costs.inverse_time(1024)), ms(costs.inverse_time(4096))});
  }
  print(table.text());
}

Json clusters_json() {
  Json list = Json::array();
  for (const std::string& name : data_names("clusters")) {
    const CostModel costs = read_cluster(data_file("clusters", name));
    list.push_back({{"name", costs.name}, {"world", costs.world}, {"source", costs.source}});
  }
  return list;
}

void show_cluster(const CostModel& costs) {
  std::string text = fmt::format("{}, {} ranks\n{}\n\n", costs.name, costs.world,
                                 report::wrap(costs.source, report::kPageWidth));
  report::Table collectives(
      {{"collective", kLeft}, {"1 element ms"}, {"1 K ms"}, {"1 M ms"}, {"64 M ms"}});
  const auto add = [&](const char* name, const CollectiveCost& cost) {
    collectives.add_row({name, ms(cost.time(1)), ms(cost.time(1000)), ms(cost.time(1'000'000)),
                         ms(cost.time(64'000'000))});
  };
  add("all_reduce", costs.all_reduce);
  add("reduce", costs.reduce);
  add("broadcast", costs.broadcast);
  text += collectives.text() + "\n";
  report::Table inverses({{"dimension"}, {"inverse ms"}, {"broadcast ms"}, {"cheaper", kLeft}});
  for (std::int64_t dim = 64; dim <= 8192; dim *= 2) {
    const Seconds inverse = costs.inverse_time(dim);
    const Seconds broadcast = costs.broadcast.time(packed_elements(dim));
    inverses.add_row({std::to_string(dim), ms(inverse), ms(broadcast),
                      inverse < broadcast ? "invert on every rank" : "invert once and send"});
  }
  text += inverses.text();
  for (const auto& [what, origin] : costs.provenance) {
    text += "\n" + report::wrap(what + ": " + origin, report::kPageWidth, 2);
  }
  print(text + (costs.provenance.empty() ? "" : "\n"));
}

constexpr const char* kAutoSummary = "the K-FAC variant with the fastest forecast";

Json algorithms_json() {
  Json list = Json::array();
  const auto add = [&](const std::vector<AlgorithmInfo>& algorithms, bool trains) {
    for (const AlgorithmInfo& info : algorithms) {
      list.push_back({{"name", info.name},
                      {"paper_name", info.paper_name},
                      {"summary", info.summary},
                      {"trains", trains},
                      {"options", to_json(OptionsAndIntervals{info.options, {}})}});
    }
  };
  add(named_algorithms(), true);
  list.push_back({{"name", kAutoAlgorithm}, {"summary", kAutoSummary}, {"trains", true}});
  add(other_methods(), false);
  return list;
}

std::string algorithms_table(const std::vector<AlgorithmInfo>& algorithms, bool wide, bool own) {
  report::Table table({{"algorithm", kLeft},
                       {"in the paper", kLeft},
                       {"factors", kLeft},
                       {"fusion", kLeft},
                       {"inverses", kLeft},
                       {"summary", kLeft}});
  for (const AlgorithmInfo& info : algorithms) {
    const bool kfac = info.options.second_order();
    table.add_row({info.name, info.paper_name.empty() ? "-" : info.paper_name,
                   name_of(factor_schedule_names(), info.options.factor_schedule),
                   name_of(fusion_names(), info.options.fusion),
                   kfac ? name_of(placement_names(), info.options.placement) : "-", info.summary});
  }
  if (own) {
    table.add_row({kAutoAlgorithm, "-", "-", "-", "-", kAutoSummary});
  } else {
    table.drop_column("in the paper");
  }
  if (!wide) {
    for (const char* title : {"factors", "fusion", "inverses"}) table.drop_column(title);
  }
  return table.text();
}

void list_algorithms(bool wide) {
  print(algorithms_table(named_algorithms(), wide, true) + "\nFor plan and simulate only\n" +
        algorithms_table(other_methods(), wide, false));
}

}  // namespace

void add_models_verb(CLI::App& app) {
  const auto read = [](const std::string& name) { return read_model(data_file("models", name)); };
  add_listing_verb(
      app, "models", "List the bundled layer tables, or show one", "Model to show",
      {.list = list_models,
       .list_json = models_json,
       .show = [read](const std::string& name) { print(report::layer_table(read(name))); },
       .json = [read](const std::string& name) { return to_json(read(name)); }});
}

void add_clusters_verb(CLI::App& app) {
  const auto read = [](const std::string& name) {
    return read_cluster(data_file("clusters", name));
  };
  add_listing_verb(app, "clusters", "List the bundled cost models, or show one", "Cluster to show",
                   {.list = list_clusters,
                    .list_json = clusters_json,
                    .show = [read](const std::string& name) { show_cluster(read(name)); },
                    .json = [read](const std::string& name) { return to_json(read(name)); }});
}

void add_algorithms_verb(CLI::App& app) {
  struct State {
    bool json = false;
    bool wide = false;
    std::string out;
  };
  const auto state = std::make_shared<State>();
  CLI::App* verb = app.add_subcommand("algorithms", "List the named algorithms and their options");
  auto* json = verb->add_flag("--json", state->json, "Print an array of the algorithms");
  verb->add_flag("--wide", state->wide, "Show all columns of the table")->excludes(json);
  verb->add_option("--out", state->out, kOutHelp)->type_name("FILE");
  verb->callback([state] {
    if (state->json || !state->out.empty()) give_json(algorithms_json(), state->json, state->out);
    if (!state->json) list_algorithms(state->wide);
  });
}

}  // namespace spdkfac::cli
