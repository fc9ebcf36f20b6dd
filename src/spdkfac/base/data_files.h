// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace spdkfac {

// The folder with models/ and clusters/: $SPDKFAC_DATA if set, otherwise ../share/spdkfac beside
// the program, in the build folder as after an installation, or ../data in the Python package.
std::filesystem::path data_folder();

// Names of the JSON files in a folder of the data, sorted.
std::vector<std::string> data_names(const std::string& kind);

// The file of a name; an unknown name is a ConfigError that lists the known ones and ends with
// `otherwise`, what else the user can do.
std::filesystem::path data_file(const std::string& kind, const std::string& name,
                                const std::string& otherwise = "");

}  // namespace spdkfac
