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
  set_graft(options, Graft::kAdam);
  set_interval(options, Refresh::kGrowing);
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

void set_graft(KfacOptions& options, Graft graft) {
  if (graft != Graft::kNone) {
    options.kl_clip = 0;
  } else if (options.graft != Graft::kNone) {
    options.kl_clip = KfacOptions().kl_clip;
  }
  options.graft = graft;
}

void set_solver(KfacOptions& options, Solver solver) {
  options.solver = solver;
  if (solver != Solver::kAdam) return;
  options.graft = Graft::kNone;
  options.kl_clip = 0;
}

void set_interval(KfacOptions& options, Refresh refresh) {
  options.interval = refresh;
  const RefreshIntervals intervals =
      refresh == Refresh::kFixed ? RefreshIntervals{} : kMostOfGrowing;
  options.factor_interval = intervals.factors;
  options.inverse_interval = intervals.inverses;
}

}  // namespace spdkfac
