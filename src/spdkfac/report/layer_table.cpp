// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/report/layer_table.h"

#include "spdkfac/report/table.h"

namespace spdkfac::report {

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
    table.add_row({std::to_string(i), layer.name,
                   layer_kind_names()[static_cast<std::size_t>(layer.kind)],
                   std::to_string(layer.d_a), std::to_string(layer.d_g), layer.bias ? "yes" : "no",
                   std::to_string(layer.positions), std::to_string(layer.gradient_elements()),
                   std::to_string(layer.gradients.size())});
  }
  return table.text();
}

}  // namespace spdkfac::report
