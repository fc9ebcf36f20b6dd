// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

#include "spdkfac/base/error.h"
#include "spdkfac/cli/verbs.h"

namespace spdkfac::cli {
namespace {

struct ForwardedVerb {
  const char* name;
  const char* help;
};
constexpr std::array kVerbs = {
    ForwardedVerb{"calibrate", kCalibrateHelp}, ForwardedVerb{"describe", kDescribeHelp},
    ForwardedVerb{"train", kTrainHelp}, ForwardedVerb{"bench", kBenchHelp}};

}  // namespace

void add_torch_verbs(CLI::App& app) {
  for (const ForwardedVerb& verb : kVerbs) app.add_subcommand(verb.name, verb.help);
}

void forward_torch_verb(int argc, char** argv) {
  for (const ForwardedVerb& verb : kVerbs) {
    if (argc < 2 || std::string_view(argv[1]) != verb.name) continue;
    const std::filesystem::path program =
        std::filesystem::read_symlink("/proc/self/exe").replace_filename("spdkfac-torch");
    execv(program.c_str(), argv);
    throw ConfigError(
        fmt::format("{}: needs LibTorch, but the program spdkfac-torch was not found ({}: {}); run "
                    "tools/setup.sh and build again; -DSPDKFAC_TORCH=ON reports what is missing",
                    verb.name, program.filename().string(), std::strerror(errno)));
  }
}

}  // namespace spdkfac::cli
