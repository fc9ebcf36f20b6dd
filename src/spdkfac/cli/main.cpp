// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spdkfac/base/error.h"
#include "spdkfac/cli/verbs.h"

namespace {

constexpr int kFailedRun = 1;
constexpr int kUsageMistake = 2;

int fail(const std::string& message, int code) {
  fmt::print(stderr, "spdkfac: {}\n", message);
  return code;
}

// The verb that was named, for the hint to its help.
std::string help_command(const CLI::App& app) {
  for (const CLI::App* verb : app.get_subcommands()) {
    return fmt::format("spdkfac {} --help", verb->get_name());
  }
  return "spdkfac --help";
}

// CLI11 only says that a subcommand is required.
void check_verb(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    if (verb->get_name() == argv[1]) return;
    names.push_back(verb->get_name());
  }
  throw spdkfac::ConfigError(fmt::format("flags: there is no verb \"{}\"; choose one of {}",
                                         argv[1], fmt::join(names, ", ")));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("spdkfac: plans, simulates, explains and runs K-FAC training", "spdkfac");
  app.set_version_flag("--version", "spdkfac " SPDKFAC_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  spdkfac::cli::add_plan_verb(app);
  spdkfac::cli::add_simulate_verb(app);
  spdkfac::cli::add_advise_verb(app);
  spdkfac::cli::add_models_verb(app);
  spdkfac::cli::add_clusters_verb(app);
  spdkfac::cli::add_algorithms_verb(app);
  spdkfac::cli::add_report_verb(app);
  spdkfac::cli::add_torch_verbs(app);
  app.footer("'spdkfac VERB --help' lists the flags of a verb.");
  try {
    check_verb(app, argc, argv);
    spdkfac::cli::forward_torch_verb(argc, argv);
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);  // --help, --version
  } catch (const CLI::ParseError& error) {
    return fail(fmt::format("flags: {}; see {}", error.what(), help_command(app)), kUsageMistake);
  } catch (const spdkfac::ConfigError& error) {
    return fail(error.what(), kUsageMistake);
  } catch (const std::exception& error) {
    return fail(error.what(), kFailedRun);
  }
  return 0;
}
