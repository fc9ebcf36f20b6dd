// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/presets.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spdkfac/base/error.h"

namespace spdkfac {
namespace {

KfacOptions grafted(double damping) {
  KfacOptions options;
  options.damping_mode = Damping::kRelative;
  options.damping = damping;
  options.kl_clip = 0;
  options.graft = Graft::kAdam;
  options.factor_interval = 10;
  options.inverse_interval = 100;
  options.growing_intervals = true;
  return options;
}

}  // namespace

const std::vector<std::string>& preset_names() {
  static const std::vector<std::string> names = {"paper", "cnn", "cnn-large-batch", "transformer",
                                                 "mlp"};
  return names;
}

KfacOptions kfac_preset(const std::string& name) {
  if (name == "paper") return {};
  if (name == "cnn") return grafted(0.1);
  if (name == "transformer") return grafted(0.01);
  if (name == "mlp") return grafted(0.1);
  if (name == "cnn-large-batch") {
    KfacOptions options = grafted(0.1);
    options.running_average = 0.8;  // a large batch has little noise to average out
    return options;
  }
  throw ConfigError(
      fmt::format("kfac: preset={}; pass one of {}", name, fmt::join(preset_names(), ", ")));
}

}  // namespace spdkfac
