// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace spdkfac::bench {
struct Experiment;
}

namespace spdkfac::cli {

// Each adds one verb with its flags and help; the verb runs when the command line was parsed.
void add_plan_verb(CLI::App& app);
void add_simulate_verb(CLI::App& app);
void add_advise_verb(CLI::App& app);
void add_models_verb(CLI::App& app);
void add_clusters_verb(CLI::App& app);
void add_algorithms_verb(CLI::App& app);
void add_report_verb(CLI::App& app);

void add_help_verb(CLI::App& app);
void add_completion_verb(CLI::App& app);

// The verbs on LibTorch, below; or, in the program without it, their names and help only.
void add_torch_verbs(CLI::App& app);
// In the program without LibTorch: if the first word is one of those verbs, or a verb that needs
// the flags of all verbs, becomes the program with LibTorch from the same folder. When there is
// none, prints the help that is asked for, as the data has it, and returns true; verbs that have to
// run there are a ConfigError that says so. Otherwise does nothing.
bool forward_torch_verb(const std::vector<std::string>& words);

constexpr const char* kTorchGroup = "Verbs that need LibTorch";

constexpr const char* kCalibrateHelp = "Measure this machine or cluster and write a cluster file";
constexpr const char* kDescribeHelp = "Print or write the layer table of a model";
constexpr const char* kTrainHelp = "Train a model with SGD, Adam or K-FAC";
constexpr const char* kBenchHelp = "Run the paper's experiments: measured, simulated or emulated";
void add_calibrate_verb(CLI::App& app);
void add_describe_verb(CLI::App& app);
void add_bench_verb(CLI::App& app);
void add_train_verb(CLI::App& app);

// The sub-verbs of `spdkfac bench`.
void add_run_bench(CLI::App& verb, const bench::Experiment& experiment);
void add_models_bench(CLI::App& verb);
void add_fit_benches(CLI::App& verb);  // comm, inverse
void add_step_bench(CLI::App& verb);
void add_accuracy_bench(CLI::App& verb);

}  // namespace spdkfac::cli
