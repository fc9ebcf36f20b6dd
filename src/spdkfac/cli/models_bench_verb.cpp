// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <memory>

#include <fmt/format.h>

#include "spdkfac/base/data_files.h"
#include "spdkfac/bench/paper.h"
#include "spdkfac/cli/output.h"
#include "spdkfac/cli/verbs.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/report/record.h"
#include "spdkfac/report/table.h"

namespace spdkfac::cli {
namespace {

struct ModelsBenchFlags {
  std::vector<std::string> models;
  std::string out;
  bool json = false;
};

Json entry_of(const ModelSpec& model) {
  std::int64_t a_elements = 0;
  std::int64_t g_elements = 0;
  Json dims_a = Json::array();
  Json dims_g = Json::array();
  for (const LayerSpec& layer : model.layers) {
    a_elements += packed_elements(layer.d_a);
    g_elements += packed_elements(layer.d_g);
    dims_a.push_back(layer.d_a);
    dims_g.push_back(layer.d_g);
  }
  return {{"name", model.name},
          {"parameters", model.parameters},
          {"layers", model.layers.size()},
          {"batch", model.batch},
          {"a_elements", a_elements},
          {"g_elements", g_elements},
          {"dims_a", dims_a},
          {"dims_g", dims_g},
          {"paper", bench::paper_model(model.name)}};
}

// A number of millions, and the paper's: 25.557 (25.6).
std::string millions(const Json& entry, const char* field) {
  std::string text = fmt::format("{:.3f}", entry.at(field).get<double>() / 1e6);
  const Json& paper = entry.at("paper");
  if (!paper.is_null()) text += fmt::format(" ({:.1f})", paper.at(field).get<double>() / 1e6);
  return text;
}

std::string details_text(const Json& entries) {
  Table table({{"model", Table::Align::kLeft},
               {"layers"},
               {"batch"},
               {"M parameters (paper)"},
               {"M elements of A (paper)"},
               {"of G (paper)"}});
  for (const Json& entry : entries) {
    table.add_row({entry.at("name").get<std::string>(), entry.at("layers").dump(),
                   entry.at("batch").dump(), millions(entry, "parameters"),
                   millions(entry, "a_elements"), millions(entry, "g_elements")});
  }
  return table.text();
}

// How many factors have how many elements, by powers of ten.
std::string sizes_text(const Json& entries) {
  constexpr std::size_t kDecades = 8;
  std::vector<Table::Column> columns{{"factors", Table::Align::kLeft}};
  for (std::size_t decade = 1; decade <= kDecades; ++decade) {
    columns.push_back({fmt::format("< 1e{}", decade)});
  }
  Table table(columns);
  for (const Json& entry : entries) {
    for (const char* side : {"a", "g"}) {
      std::array<int, kDecades> counts{};
      for (const Json& dim : entry.at(fmt::format("dims_{}", side))) {
        const auto elements = static_cast<double>(packed_elements(dim.get<std::int64_t>()));
        const auto decade = static_cast<std::size_t>(std::log10(elements));
        ++counts[std::min(decade, kDecades - 1)];
      }
      std::vector<std::string> cells = {
          fmt::format("{} of {}", side[0] == 'a' ? "A" : "G", entry.at("name").get<std::string>())};
      for (const int count : counts) cells.push_back(count == 0 ? "" : std::to_string(count));
      table.add_row(cells);
    }
  }
  return table.text();
}

void run_models_bench(const ModelsBenchFlags& flags) {
  RecordHead head;
  head.experiment = "models";
  Json record = to_json(head);
  record["models"] = Json::array();
  for (const std::string& name : flags.models.empty() ? data_names("models") : flags.models) {
    record["models"].push_back(entry_of(read_model(data_file("models", name))));
  }
  if (!flags.out.empty()) write_file_atomically(flags.out, record.dump(1) + "\n");
  if (flags.json) {
    print_json(record);
  } else {
    print(details_text(record["models"]) + "\n" + sizes_text(record["models"]) +
          "Elements of upper triangles, which travel.\n");
  }
}

}  // namespace

void add_models_bench(CLI::App& bench) {
  CLI::App* verb = bench.add_subcommand("models", "Layers and factor sizes, beside the paper's");
  const auto flags = std::make_shared<ModelsBenchFlags>();
  verb->add_option("--model", flags->models, "Repeatable; default: all that the data has")
      ->expected(1)
      ->take_all();
  verb->add_option("--out", flags->out, "Write the record here, for 'spdkfac report'");
  verb->add_flag("--json", flags->json, "Print the record");
  verb->callback([flags] { run_models_bench(*flags); });
}

}  // namespace spdkfac::cli
