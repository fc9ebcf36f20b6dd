// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/base/data_files.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/base/nearest_name.h"

namespace spdkfac {

namespace fs = std::filesystem;

namespace {

fs::path folder_of_program() {
  const fs::path prefix = fs::read_symlink("/proc/self/exe").parent_path().parent_path();
  std::error_code ignored;
  const fs::path shared = prefix / "share/spdkfac";
  return !fs::exists(shared, ignored) && fs::exists(prefix / "data", ignored) ? prefix / "data"
                                                                              : shared;
}

}  // namespace

fs::path data_folder() {
  const char* override = std::getenv("SPDKFAC_DATA");
  const fs::path folder = override != nullptr ? fs::path(override) : folder_of_program();
  std::error_code ignored;
  if (!fs::is_directory(folder / "models", ignored) ||
      !fs::is_directory(folder / "clusters", ignored)) {
    throw ConfigError(
        fmt::format("data: {} has no folders models and clusters{}; install spdkfac with its data, "
                    "or set SPDKFAC_DATA to the data folder of the sources",
                    folder.string(), override != nullptr ? " (from SPDKFAC_DATA)" : ""));
  }
  return folder;
}

std::vector<std::string> data_names(const std::string& kind) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(data_folder() / kind)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

fs::path data_file(const std::string& kind, const std::string& name, const std::string& otherwise) {
  const auto names = data_names(kind);
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    throw ConfigError(fmt::format("{}: there is no \"{}\"; {}{}", kind, name,
                                  advice_for_name(name, names), otherwise));
  }
  return data_folder() / kind / (name + ".json");
}

}  // namespace spdkfac
