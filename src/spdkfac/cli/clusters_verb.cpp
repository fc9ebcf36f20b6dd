// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "spdkfac/cli/data_files.h"
#include "spdkfac/cli/listing_verb.h"
#include "spdkfac/cli/output.h"
#include "spdkfac/cli/verbs.h"
#include "spdkfac/plan/cost_model.h"
#include "spdkfac/report/table.h"

namespace spdkfac::cli {
namespace {

constexpr Table::Align kLeft = Table::Align::kLeft;

std::string milliseconds(Seconds time) { return fmt::format("{:.3f}", 1e3 * time.value()); }

void list_clusters() {
  constexpr std::int64_t kMillion = 1'000'000;
  Table table({{"cluster", kLeft},
               {"workers"},
               {"all-reduce start ms"},
               {"of 1 M ms"},
               {"broadcast of 1 M ms"},
               {"inverse of 1024 ms"},
               {"of 4096 ms"}});
  for (const std::string& name : data_names("clusters")) {
    const CostModel costs = read_cluster(data_file("clusters", name));
    table.add_row({costs.name, std::to_string(costs.world),
                   milliseconds(costs.all_reduce.startup()),
                   milliseconds(costs.all_reduce.time(kMillion)),
                   milliseconds(costs.broadcast.time(kMillion)),
                   milliseconds(costs.inverse_time(1024)), milliseconds(costs.inverse_time(4096))});
  }
  print(table.text());
}

void show_cluster(const CostModel& costs) {
  std::string text = fmt::format("{}, {} workers\n{}\n\n", costs.name, costs.world, costs.source);
  Table collectives({{"collective", kLeft}, {"1 element ms"}, {"1 K ms"}, {"1 M ms"}, {"64 M ms"}});
  const auto add = [&](const char* name, const CollectiveCost& cost) {
    collectives.add_row({name, milliseconds(cost.time(1)), milliseconds(cost.time(1000)),
                         milliseconds(cost.time(1'000'000)), milliseconds(cost.time(64'000'000))});
  };
  add("all_reduce", costs.all_reduce);
  add("reduce", costs.reduce);
  add("broadcast", costs.broadcast);
  text += collectives.text() + "\n";
  Table inverses({{"dimension"}, {"inverse ms"}, {"broadcast ms"}, {"cheaper", kLeft}});
  for (std::int64_t dim = 64; dim <= 8192; dim *= 2) {
    const Seconds inverse = costs.inverse_time(dim);
    const Seconds broadcast = costs.broadcast.time(packed_elements(dim));
    inverses.add_row({std::to_string(dim), milliseconds(inverse), milliseconds(broadcast),
                      inverse < broadcast ? "invert on every worker" : "invert once and send"});
  }
  text += inverses.text();
  for (const auto& [what, origin] : costs.provenance) text += fmt::format("\n{}: {}", what, origin);
  print(text + (costs.provenance.empty() ? "" : "\n"));
}

}  // namespace

void add_clusters_verb(CLI::App& app) {
  const auto read = [](const std::string& name) {
    return read_cluster(data_file("clusters", name));
  };
  add_listing_verb(app, "clusters", "The cost models that come with spdkfac",
                   "Show the costs of this cluster",
                   {.list = list_clusters,
                    .show = [read](const std::string& name) { show_cluster(read(name)); },
                    .json = [read](const std::string& name) { return to_json(read(name)); }});
}

}  // namespace spdkfac::cli
