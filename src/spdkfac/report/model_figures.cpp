// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/report/model_figures.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "spdkfac/report/table.h"

namespace spdkfac::report {
namespace {

// A number of millions, and the paper's: 25.557 (25.6).
std::string millions(std::int64_t count, std::optional<double> paper) {
  std::string text = fmt::format("{:.3f}", static_cast<double>(count) / 1e6);
  if (paper) text += fmt::format(" ({:.1f})", *paper / 1e6);
  return text;
}

std::string details_text(std::span<const ModelFigures> models) {
  Table table({{"model", Table::Align::kLeft},
               {"layers"},
               {"batch"},
               {"M parameters (paper)"},
               {"M elements of A (paper)"},
               {"of G (paper)"}});
  for (const ModelFigures& model : models) {
    const auto paper = [&](double PaperModel::*field) {
      return model.paper ? std::optional((*model.paper).*field) : std::nullopt;
    };
    table.add_row({model.name, std::to_string(model.layers), std::to_string(model.batch),
                   millions(model.parameters, paper(&PaperModel::parameters)),
                   millions(model.a_elements, paper(&PaperModel::a_elements)),
                   millions(model.g_elements, paper(&PaperModel::g_elements))});
  }
  return table.text();
}

// How many factors have how many elements, by powers of ten.
std::string sizes_text(std::span<const ModelFigures> models) {
  constexpr std::size_t kDecades = 8;
  std::vector<Table::Column> columns{{"factors", Table::Align::kLeft}};
  for (std::size_t decade = 1; decade <= kDecades; ++decade) {
    columns.push_back({fmt::format("< 1e{}", decade)});
  }
  Table table(columns);
  const auto add = [&](const std::string& title, const std::vector<std::int64_t>& dims) {
    std::array<int, kDecades> counts{};
    for (const std::int64_t dim : dims) {
      const auto elements = static_cast<double>(packed_elements(dim));
      const auto decade = static_cast<std::size_t>(std::log10(elements));
      ++counts[std::min(decade, kDecades - 1)];
    }
    std::vector<std::string> cells = {title};
    for (const int count : counts) cells.push_back(count == 0 ? "" : std::to_string(count));
    table.add_row(cells);
  };
  for (const ModelFigures& model : models) {
    add("A of " + model.name, model.dims_a);
    add("G of " + model.name, model.dims_g);
  }
  return table.text();
}

}  // namespace

ModelFigures figures_of(const ModelSpec& model, const std::optional<PaperModel>& paper) {
  ModelFigures figures{.name = model.name,
                       .parameters = model.parameters,
                       .layers = static_cast<std::int64_t>(model.layers.size()),
                       .batch = model.batch,
                       .dims_a = {},
                       .dims_g = {},
                       .paper = paper};
  for (const LayerSpec& layer : model.layers) {
    const FactorShape a = layer.shape(FactorSide::kA);
    const FactorShape g = layer.shape(FactorSide::kG);
    figures.a_elements += a.packed();
    figures.g_elements += g.packed();
    figures.dims_a.push_back(a.dim());
    figures.dims_g.push_back(g.dim());
  }
  return figures;
}

std::string to_text(std::span<const ModelFigures> models) {
  return details_text(models) + "\n" + sizes_text(models) +
         "Elements count the upper triangles, which are what is sent.\n";
}

Json to_json(const ModelFigures& model) {
  Json paper;
  if (model.paper) {
    paper = {{"parameters", model.paper->parameters},
             {"layers", model.paper->layers},
             {"batch", model.paper->batch},
             {"a_elements", model.paper->a_elements},
             {"g_elements", model.paper->g_elements}};
  }
  return {
      {"name", model.name},     {"parameters", model.parameters}, {"layers", model.layers},
      {"batch", model.batch},   {"a_elements", model.a_elements}, {"g_elements", model.g_elements},
      {"dims_a", model.dims_a}, {"dims_g", model.dims_g},         {"paper", paper}};
}

}  // namespace spdkfac::report
