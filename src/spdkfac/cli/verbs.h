// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace spdkfac::cli {

// Each adds one verb with its flags and help; the verb runs when the command line was parsed.
void add_plan_verb(CLI::App& app);
void add_simulate_verb(CLI::App& app);
void add_models_verb(CLI::App& app);
void add_clusters_verb(CLI::App& app);
void add_algorithms_verb(CLI::App& app);

}  // namespace spdkfac::cli
