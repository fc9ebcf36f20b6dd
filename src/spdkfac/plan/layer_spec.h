// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "spdkfac/base/factor_shape.h"
#include "spdkfac/base/factor_side.h"
#include "spdkfac/base/units.h"

namespace spdkfac {

// The most ranks that files and flags may name: far more than clusters have, few enough that the
// trace of every rank fits into memory.
constexpr int kMaxWorld = 16384;

// In files and tables by their names (layer_kind_names).
enum class LayerKind {
  kConv2d,
  kLinear,
  kConv1d,
  kConv3d,
  kConvTranspose1d,
  kConvTranspose2d,
  kConvTranspose3d,
  kLinearInOut,  // its weight is [in, out]
  kEmbedding,
  kNorm,  // a scale and a shift for each unit of what is normalised
};
const std::vector<std::string>& layer_kind_names();

// Arithmetic of one example.
struct LayerFlops {
  Flops forward;
  Flops factor_a;
  Flops factor_g;
};

// Measured seconds of the whole batch; they override flops.
struct LayerTimes {
  Seconds forward;
  Seconds backward;
  Seconds factor_a;
  Seconds factor_g;
  std::optional<Seconds> precondition = std::nullopt;  // with its share of the clipping
  std::optional<Seconds> inverse_a = std::nullopt;
  std::optional<Seconds> inverse_g = std::nullopt;
};

// How many times as long as its layers' times say a rank takes for the parts of a step, behind
// which it waits for the others.
struct Slowness {
  double passes = 1;  // with the factors
  double inverses = 1;
  double preconditioning = 1;
};

// Shapes and costs of one preconditioned layer.
struct LayerSpec {
  std::string name;
  LayerKind kind = LayerKind::kConv2d;
  std::int64_t d_a = 0;  // rows of factor A, with the bias column
  std::int64_t d_g = 0;
  std::int64_t groups = 1;    // of a convolution: each has factors of these sizes
  std::int64_t blocks_a = 1;  // along the diagonal, that are kept of A; d_a of them: the diagonal
  std::int64_t blocks_g = 1;
  bool bias = false;
  std::int64_t positions = 1;  // output positions of a convolution
  // Sizes of the gradient tensors that its backward makes ready: its own (weight, bias), then
  // those of the modules without factors that follow it.
  std::vector<std::int64_t> gradients;
  std::optional<LayerFlops> flops;
  std::optional<LayerTimes> times;

  std::size_t own_tensors() const { return bias ? 2 : 1; }
  std::int64_t own_elements() const { return groups * d_a * d_g; }
  FactorShape shape(FactorSide side) const {
    return side == FactorSide::kA ? FactorShape{d_a, groups, blocks_a}
                                  : FactorShape{d_g, groups, blocks_g};
  }
  std::int64_t gradient_elements() const;
};

struct ModelSpec {
  std::string name;
  std::int64_t batch = 1;
  std::vector<std::int64_t> input;
  std::int64_t parameters = 0;
  std::vector<LayerSpec> layers;
};

// Reads a layer table (docs/formats.md); anything unexpected is a ConfigError with the field's
// path.
ModelSpec read_model(const std::filesystem::path& path);

}  // namespace spdkfac
