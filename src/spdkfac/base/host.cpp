// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/base/host.h"

#include <chrono>
#include <fstream>
#include <sstream>

#include <fmt/chrono.h>
#include <fmt/format.h>

namespace spdkfac {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

std::optional<Bytes> available_memory(const std::filesystem::path& meminfo) {
  std::ifstream file(meminfo);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::string unit;
    std::int64_t kibibytes = 0;
    if (words >> name >> kibibytes >> unit && name == "MemAvailable:" && unit == "kB") {
      return Bytes(kibibytes * 1024);
    }
  }
  return std::nullopt;
}

std::string utc_stamp() {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now));
}

}  // namespace spdkfac
