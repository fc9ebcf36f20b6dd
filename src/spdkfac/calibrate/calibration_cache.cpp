// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/calibrate/calibration_cache.h"

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spdkfac/base/error.h"
#include "spdkfac/base/hash.h"
#include "spdkfac/plan/cluster_file.h"

namespace spdkfac::calibrate {
namespace {

namespace fs = std::filesystem;

// Other ways to measure are other caches: raise it with them.
constexpr int kCacheVersion = 1;
// In the provenance of a kept file, so that two keys of one hash do not meet.
constexpr const char* kKeyField = "cache key";

}  // namespace

std::string cache_key(const Machine& machine, int world, const std::string& transport) {
  return fmt::format("version {}; {}; hosts {:016x}; {} ranks; {}; {} threads; {} {}",
                     kCacheVersion, versions(),
                     fnv1a(fmt::format("{}", fmt::join(machine.hosts, "\n"))), world,
                     machine.device, machine.threads, transport, machine.transport);
}

fs::path default_cache_folder() {
  // An empty or relative XDG_CACHE_HOME does not count, by its specification.
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
    return fs::path(cache) / "spdkfac";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return fs::path(home) / ".cache" / "spdkfac";
  }
  return {};
}

fs::path cache_file(const fs::path& folder, const std::string& key) {
  return folder / fmt::format("calibration-{:016x}.json", fnv1a(key));
}

std::string read_cache(const fs::path& file, const std::string& key,
                       std::string& warning) noexcept {
  try {
    std::error_code ignored;
    if (!fs::exists(file, ignored)) return "";
    const CostModel costs = read_cluster(file);
    const auto found = costs.provenance.find(kKeyField);
    if (found == costs.provenance.end() || found->second != key) {
      throw ConfigError(fmt::format("{}: was measured for another setting", file.string()));
    }
    return to_json(costs).dump(1) + "\n";
  } catch (const std::exception& error) {
    warning = fmt::format("{}; measuring again", error.what());
    return "";
  }
}

void write_cache(const fs::path& file, const std::string& key, CostModel costs,
                 std::string& warning) noexcept {
  try {
    costs.provenance[kKeyField] = key;
    fs::create_directories(file.parent_path());
    write_file_atomically(file, to_json(costs).dump(1) + "\n");
  } catch (const std::exception& error) {
    warning =
        fmt::format("calibrate: the costs cannot be kept for the next run ({})", error.what());
  }
}

}  // namespace spdkfac::calibrate
