// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "spdkfac/runtime/kfac_options.h"

namespace spdkfac::cli {

// The K-FAC flags of `spdkfac train`. A preset gives what no flag gives; without one it is the
// published algorithm with inverses every 5 steps.
struct KfacFlags {
  std::optional<std::string> preset;
  std::optional<double> damping;
  bool lm_damping = false;
  std::optional<std::string> damping_mode;
  std::optional<double> running_average;
  bool identity_start = false;
  std::string convention = "kfc";
  std::optional<double> kl_clip;
  std::string solver = "inverse";
  std::optional<std::string> graft;
  std::optional<std::string> interval;
  std::optional<std::int64_t> factor_interval;
  std::optional<std::int64_t> inverse_interval;
  std::optional<double> refresh_change;
  bool spread_refreshes = false;
  bool norms = false;
  std::string precision = "tf32";
  std::optional<std::int64_t> max_dimension;
  std::string large_factors = "diagonal";
  std::int64_t patch_megabytes = 0;

  void add_to(CLI::App& verb, const std::string& group);
  // `over_adam`: the optimizer is Adam or AdamW.
  KfacOptions options(bool over_adam) const;

 private:
  void set_intervals(KfacOptions& options) const;
};

}  // namespace spdkfac::cli
