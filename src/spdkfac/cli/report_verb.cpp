// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "spdkfac/base/data_files.h"
#include "spdkfac/base/error.h"
#include "spdkfac/cli/verbs.h"

namespace spdkfac::cli {
namespace {

namespace fs = std::filesystem;

struct ReportFlags {
  std::vector<std::string> records;
  std::string out;
  std::string title;
};

// The Python package that makes the page: with the data after an installation, beside them in the
// Python package, or in the checkout.
fs::path page_package() {
  const fs::path data = fs::weakly_canonical(data_folder());
  for (const fs::path& folder :
       {data / "page", data.parent_path() / "page", data.parent_path() / "python/spdkfac/page"}) {
    if (fs::exists(folder / "__main__.py")) return folder;
  }
  throw ConfigError(fmt::format(
      "report: the Python package that draws the page is missing (looked near {}); install "
      "spdkfac again",
      data.string()));
}

// $SPDKFAC_PYTHON, the checkout's own, or the system's.
std::string interpreter() {
  if (const char* chosen = std::getenv("SPDKFAC_PYTHON"); chosen != nullptr && *chosen != '\0') {
    return chosen;
  }
  const fs::path own = fs::weakly_canonical(data_folder()).parent_path() / ".venv/bin/python";
  return fs::exists(own) ? own.string() : "python3";
}

[[noreturn]] void run_page_package(const ReportFlags& flags) {
  std::vector<std::string> arguments = {interpreter(), page_package().string(), "--out", flags.out};
  if (!flags.title.empty()) arguments.push_back("--title=" + flags.title);
  arguments.push_back("--");
  arguments.insert(arguments.end(), flags.records.begin(), flags.records.end());
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  execvp(pointers[0], pointers.data());
  throw ConfigError(
      fmt::format("report: cannot run {} ({}); set SPDKFAC_PYTHON to a Python that has plotly",
                  pointers[0], std::strerror(errno)));
}

}  // namespace

void add_report_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("report", "Draw one HTML page from records of experiments");
  const auto flags = std::make_shared<ReportFlags>();
  verb->add_option("records", flags->records, "Files written by 'spdkfac bench … --out'")
      ->type_name("FILE")
      ->required();
  verb->add_option("--out", flags->out, "Write the page here")->type_name("FILE")->required();
  verb->add_option("--title", flags->title, "Title of the page")->type_name("TEXT");
  verb->footer("Example: spdkfac report out/*.json --out report.html");
  verb->callback([flags] { run_page_package(*flags); });
}

}  // namespace spdkfac::cli
