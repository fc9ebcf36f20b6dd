// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

#include "spdkfac/base/data_files.h"
#include "spdkfac/base/error.h"
#include "spdkfac/cli/output.h"
#include "spdkfac/cli/verbs.h"
#include "spdkfac/report/table.h"

namespace spdkfac::cli {
namespace {

struct ForwardedVerb {
  const char* name;
  const char* help;
  const char* otherwise;  // what to do without LibTorch
};
constexpr std::array kVerbs = {
    ForwardedVerb{"calibrate", kCalibrateHelp, "'spdkfac clusters' lists bundled cluster files"},
    ForwardedVerb{"describe", kDescribeHelp, "'spdkfac models' lists bundled layer tables"},
    ForwardedVerb{"train", kTrainHelp, "'spdkfac simulate' forecasts an iteration"},
    ForwardedVerb{"bench", kBenchHelp, "'spdkfac simulate --compare' forecasts the algorithms"}};
constexpr const char* kRemedy =
    "run tools/setup.sh --torch in a checkout of spdkfac and build again (make program); "
    "-DSPDKFAC_TORCH=ON reports what is missing";

std::filesystem::path torch_program() {
  return std::filesystem::read_symlink("/proc/self/exe").replace_filename("spdkfac-torch");
}

bool has_torch_program() {
  std::error_code ignored;
  return std::filesystem::exists(torch_program(), ignored);
}

void become_torch_program(const std::vector<std::string>& words) {
  std::vector<std::string> arguments = {"spdkfac"};
  arguments.insert(arguments.end(), words.begin(), words.end());
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  execv(torch_program().c_str(), pointers.data());
}

bool contains(const std::vector<std::string>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string missing_text(const ForwardedVerb& verb) {
  return report::wrap(
      fmt::format("This verb needs LibTorch, which this build does not have: it cannot run. To get "
                  "it, {}. Without it, {}.",
                  kRemedy, verb.otherwise),
      report::kPageWidth);
}

// What the program with LibTorch prints (tools/write_help.py): of `bench iteration`, else `bench`.
std::string help_in_data(const std::vector<std::string>& words) {
  const std::filesystem::path folder = data_folder() / "help";
  std::vector<std::string> names = {words[0]};
  if (words.size() > 1 && !words[1].starts_with('-')) names.push_back(words[0] + "-" + words[1]);
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    std::ifstream file(folder / (*name + ".txt"));
    if (file) return (std::ostringstream() << file.rdbuf()).str() + "\n";
  }
  return "";
}

}  // namespace

void add_torch_verbs(CLI::App& app) {
  const bool there = has_torch_program();
  for (const ForwardedVerb& verb : kVerbs) {
    CLI::App* added = app.add_subcommand(verb.name, verb.help);
    added->group(there ? std::string(kTorchGroup)
                       : fmt::format("{}, which this build does not have", kTorchGroup));
    added->footer(missing_text(verb));
  }
}

bool forward_torch_verb(const std::vector<std::string>& words) {
  if (words.empty()) return false;
  if (words[0] == "completion" || words[0] == "help") {
    if (has_torch_program()) become_torch_program(words);
    return false;
  }
  for (const ForwardedVerb& verb : kVerbs) {
    if (words[0] != verb.name) continue;
    become_torch_program(words);
    const int problem = errno;
    if (!has_torch_program() && (contains(words, "--help") || contains(words, "-h"))) {
      print(help_in_data(words) + missing_text(verb) + "\n");
      return true;
    }
    throw ConfigError(
        fmt::format("{}: needs LibTorch, but the program spdkfac-torch was not found ({}: {}); {}; "
                    "without it, {}",
                    verb.name, torch_program().filename().string(), std::strerror(problem), kRemedy,
                    verb.otherwise));
  }
  return false;
}

}  // namespace spdkfac::cli
