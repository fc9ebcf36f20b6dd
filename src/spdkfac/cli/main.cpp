// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/cli/help.h"
#include "spdkfac/cli/verbs.h"

namespace {

constexpr int kFailedRun = 1;
constexpr int kUsageMistake = 2;
constexpr const char* kVersion =
    "spdkfac " SPDKFAC_VERSION "\ncommit " SPDKFAC_COMMIT "\nLibTorch " SPDKFAC_BUILT_WITH_TORCH
    "\nCUDA " SPDKFAC_BUILT_WITH_CUDA "\nMPI " SPDKFAC_BUILT_WITH_MPI
    "\nNCCL " SPDKFAC_BUILT_WITH_NCCL;

int fail(const std::string& message, int code) {
  fmt::print(stderr, "spdkfac: {}\n", message);
  return code;
}

// `help VERB` is `VERB --help`; `help --man` is a verb that runs.
std::vector<std::string> words_of(int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const bool flags =
      std::any_of(words.begin(), words.end(), [](const auto& word) { return word[0] == '-'; });
  if (!words.empty() && words[0] == "help" && !flags) {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  return words;
}

// CLI11 only says that a subcommand is required.
void check_verb(const CLI::App& app, const std::vector<std::string>& words) {
  if (words.empty() || words[0].starts_with('-')) return;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    if (verb->get_name() == words[0]) return;
  }
  throw spdkfac::ConfigError(spdkfac::cli::unknown_verb(app, words[0]));
}

void add_verbs(CLI::App& app) {
  app.formatter(spdkfac::cli::help_formatter());
  app.set_version_flag("-V,--version", kVersion, "Print version, commit and what was built in");
  app.set_help_flag("-h,--help", "Print this help");
  app.require_subcommand(1);
  spdkfac::cli::add_plan_verb(app);
  spdkfac::cli::add_simulate_verb(app);
  spdkfac::cli::add_advise_verb(app);
  spdkfac::cli::add_models_verb(app);
  spdkfac::cli::add_clusters_verb(app);
  spdkfac::cli::add_algorithms_verb(app);
  spdkfac::cli::add_report_verb(app);
  spdkfac::cli::add_help_verb(app);
  spdkfac::cli::add_completion_verb(app);
  for (CLI::App* verb : app.get_subcommands(nullptr)) verb->group("Verbs");
  spdkfac::cli::add_torch_verbs(app);
  app.footer(
      "'spdkfac help VERB' lists the flags of a verb.");  // verbs added later would have it, too
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("spdkfac: plans, simulates, explains and runs K-FAC training", "spdkfac");
  add_verbs(app);
  try {
    const std::vector<std::string> words = words_of(argc, argv);
    check_verb(app, words);
    if (spdkfac::cli::forward_torch_verb(words)) return 0;
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::Success& success) {
    return app.exit(success);  // --help, --version
  } catch (const CLI::ParseError& error) {
    const std::string problem = spdkfac::cli::explain(app, error);
    if (!problem.empty()) return fail(problem, kUsageMistake);
    fmt::print(stderr, "{}", app.help());  // no verb: as git does, help and not success
    return kUsageMistake;
  } catch (const spdkfac::ConfigError& error) {
    return fail(error.what(), kUsageMistake);
  } catch (const std::exception& error) {
    return fail(error.what(), kFailedRun);
  }
  return 0;
}
