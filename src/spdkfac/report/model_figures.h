// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "spdkfac/base/json.h"
#include "spdkfac/plan/layer_spec.h"

namespace spdkfac::report {

// What the paper prints about a model; large numbers are rounded there.
struct PaperModel {
  double parameters = 0;
  std::int64_t layers = 0;
  std::int64_t batch = 0;
  double a_elements = 0;
  double g_elements = 0;
};

// How large a model and its factors are. Elements are those of upper triangles, which travel.
struct ModelFigures {
  std::string name;
  std::int64_t parameters = 0;
  std::int64_t layers = 0;
  std::int64_t batch = 0;
  std::int64_t a_elements = 0;
  std::int64_t g_elements = 0;
  std::vector<std::int64_t> dims_a;  // by layer
  std::vector<std::int64_t> dims_g;
  std::optional<PaperModel> paper;
};
ModelFigures figures_of(const ModelSpec& model, const std::optional<PaperModel>& paper);

std::string to_text(std::span<const ModelFigures> models);
Json to_json(const ModelFigures& model);

}  // namespace spdkfac::report
