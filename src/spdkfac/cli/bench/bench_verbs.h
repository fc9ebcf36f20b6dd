// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

#include "spdkfac/cli/bench/experiments.h"

namespace spdkfac::cli {

// The sub-verbs of `spdkfac bench`.
void add_run_bench(CLI::App& bench, const Experiment& experiment);
void add_models_bench(CLI::App& bench);
void add_fit_benches(CLI::App& bench);  // comm, inverse
void add_step_bench(CLI::App& bench);
void add_accuracy_bench(CLI::App& bench);

}  // namespace spdkfac::cli
