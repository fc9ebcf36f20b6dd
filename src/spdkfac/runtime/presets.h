// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "spdkfac/runtime/kfac_options.h"

namespace spdkfac {

// paper: the published algorithm: π damping, every update clipped, everything renewed in each step.
// The others take the length of Adam's steps, so that the rate and schedule of AdamW apply, damp
// relatively and renew often early and rarely later: cnn, cnn-large-batch, transformer, mlp.
const std::vector<std::string>& preset_names();

// A ConfigError for another name.
KfacOptions kfac_preset(const std::string& name);

// What else changes with these fields. Without grafting updates are limited as the paper's are, and
// with it they are not. Intervals that are not fixed are at most 10 and 100 steps, fixed ones 1.
void set_graft(KfacOptions& options, Graft graft);
// Adam in the eigenvectors sets the length of updates itself, without grafting or limits.
void set_solver(KfacOptions& options, Solver solver);
void set_interval(KfacOptions& options, Refresh refresh);

}  // namespace spdkfac
