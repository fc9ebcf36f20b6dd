// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/factor_shapes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spdkfac/runtime/kinds/kind.h"

namespace spdkfac::runtime {
namespace {

FactorShape unsplit_shape(const TrackedLayer& layer, FactorSide side) {
  return {side == FactorSide::kA ? layer.d_a() : layer.d_g(), layer.groups};
}

bool exceeds(const FactorShape& whole, const FactorLimit& limit) {
  return whole.size > limit.max_dimension;
}

// Blocks of units are all that there is.
bool is_cut(const TrackedLayer& layer, FactorSide side, const FactorLimit& limit) {
  return !layer.has_units() && exceeds(unsplit_shape(layer, side), limit);
}

}  // namespace

FactorShape factor_shape(const TrackedLayer& layer, FactorSide side, const FactorLimit& limit) {
  const FactorShape whole = unsplit_shape(layer, side);
  if (layer.has_units()) return {whole.size, 1, side == FactorSide::kA ? 1 : layer.weight.numel()};
  const bool diagonal = side == FactorSide::kA ? layer.form_a == FactorForm::kDiagonal ||
                                                     kind_of(layer.kind).diagonal_a
                                               : layer.form_g == FactorForm::kDiagonal;
  if (diagonal) return whole.as_diagonal();
  if (!exceeds(whole, limit)) return whole;
  return limit.large == LargeFactors::kDiagonal ? whole.as_diagonal()
                                                : whole.in_blocks_of(limit.max_dimension);
}

void log_split_factors(const std::vector<TrackedLayer>& layers, const FactorLimit& limit,
                       Logger& logger) {
  std::vector<std::string> factors;
  for (const TrackedLayer& layer : layers) {
    for (const FactorSide side : {FactorSide::kA, FactorSide::kG}) {
      if (!is_cut(layer, side, limit)) continue;
      const FactorShape shape = factor_shape(layer, side, limit);
      factors.push_back(fmt::format(
          "{} of {} ({} rows: {})", side == FactorSide::kA ? "A" : "G", layer.name, shape.size,
          shape.is_diagonal() ? "diagonal" : fmt::format("{} blocks", shape.blocks)));
    }
  }
  if (factors.empty()) return;
  logger.info(fmt::format("kfac: factors above max_dimension={} are not kept whole: {}",
                          limit.max_dimension, fmt::join(factors, ", ")));
}

}  // namespace spdkfac::runtime
