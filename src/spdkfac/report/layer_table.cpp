// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/report/layer_table.h"

#include <fmt/format.h>

#include "spdkfac/report/table.h"

namespace spdkfac::report {

namespace {

// Rows, and in what the factor falls apart: 9 x 96 (groups), 50257 diagonal, 9000 in 2.
std::string size_text(const FactorShape& shape) {
  std::string text = std::to_string(shape.size);
  if (shape.groups > 1) text += fmt::format(" x {}", shape.groups);
  if (!shape.is_split()) return text;
  return shape.is_diagonal() ? text + " diagonal" : text + fmt::format(" in {}", shape.blocks);
}

}  // namespace

std::string layer_table(const ModelSpec& model) {
  Table table({{"layer"},
               {"name", Table::Align::kLeft},
               {"kind", Table::Align::kLeft},
               {"d_a"},
               {"d_g"},
               {"bias", Table::Align::kLeft},
               {"positions"},
               {"gradient elements"},
               {"tensors"}});
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const LayerSpec& layer = model.layers[i];
    table.add_row(
        {std::to_string(i), layer.name, layer_kind_names()[static_cast<std::size_t>(layer.kind)],
         size_text(layer.shape(FactorSide::kA)), size_text(layer.shape(FactorSide::kG)),
         layer.bias ? "yes" : "no", std::to_string(layer.positions),
         std::to_string(layer.gradient_elements()), std::to_string(layer.gradients.size())});
  }
  return table.text();
}

}  // namespace spdkfac::report
