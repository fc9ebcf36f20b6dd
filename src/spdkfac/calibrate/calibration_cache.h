// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "spdkfac/calibrate/machine.h"
#include "spdkfac/plan/cost_model.h"

namespace spdkfac::calibrate {

// Cluster files that were measured before, for one process at a time; one process never sees half a
// file of another.

// What the costs depend on, as text.
std::string cache_key(const Machine& machine, int world, const std::string& transport);

// $XDG_CACHE_HOME/spdkfac, or ~/.cache/spdkfac; empty without both variables.
std::filesystem::path default_cache_folder();

std::filesystem::path cache_file(const std::filesystem::path& folder, const std::string& key);

// The cluster file kept for the key. Empty if there is none, or if it cannot be used, and then the
// warning says why. Never throws.
std::string read_cache(const std::filesystem::path& file, const std::string& key,
                       std::string& warning) noexcept;

// Keeps the costs; if that is not possible, the warning says why. Never throws.
void write_cache(const std::filesystem::path& file, const std::string& key, CostModel costs,
                 std::string& warning) noexcept;

}  // namespace spdkfac::calibrate
