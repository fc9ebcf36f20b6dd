// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spdkfac/cli/data_files.h"
#include "spdkfac/cli/layer_table.h"
#include "spdkfac/cli/listing_verb.h"
#include "spdkfac/cli/output.h"
#include "spdkfac/cli/verbs.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/report/table.h"

namespace spdkfac::cli {
namespace {

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
    totals.a += packed_elements(layer.d_a);
    totals.g += packed_elements(layer.d_g);
    totals.largest = std::max({totals.largest, layer.d_a, layer.d_g});
  }
  return totals;
}

void list_models() {
  Table table({{"model", Table::Align::kLeft},
               {"layers"},
               {"batch"},
               {"input", Table::Align::kLeft},
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
  print(table.text() + "Elements are those of the upper triangles, which travel.\n");
}

}  // namespace

void add_models_verb(CLI::App& app) {
  const auto read = [](const std::string& name) { return read_model(data_file("models", name)); };
  add_listing_verb(app, "models", "The layer tables that come with spdkfac",
                   "Show the layers of this model",
                   {.list = list_models,
                    .show = [read](const std::string& name) { print(layer_table(read(name))); },
                    .json = [read](const std::string& name) { return to_json(read(name)); }});
}

}  // namespace spdkfac::cli
