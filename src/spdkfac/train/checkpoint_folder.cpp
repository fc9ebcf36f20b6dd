// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/train/checkpoint_folder.h"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "spdkfac/base/error.h"

namespace spdkfac::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSuffix = ".ckpt";
constexpr const char* kDamaged = ".damaged";

// −1: not the name of a checkpoint.
std::int64_t step_of(const std::string& name) {
  if (name.size() < kPrefix.size() + 8 + kSuffix.size() || !name.starts_with(kPrefix) ||
      !name.ends_with(kSuffix)) {
    return -1;
  }
  const std::string digits =
      name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
  const bool number = digits.size() <= 18 && std::all_of(digits.begin(), digits.end(), [](char c) {
                        return c >= '0' && c <= '9';
                      });
  return number ? std::stoll(digits) : -1;
}

}  // namespace

CheckpointFolder::CheckpointFolder(fs::path folder, int keep)
    : folder_(std::move(folder)), keep_(keep) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) {
    throw ConfigError(
        fmt::format("{}: the folder cannot be created ({}); pass another --checkpoint-dir",
                    folder_.string(), error.message()));
  }
  descriptor_ = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // Some network file systems know no locks; there the user must keep runs apart.
  if (descriptor_ >= 0 && ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(descriptor_);
    throw ConfigError(
        fmt::format("{}: another run is using this folder; wait until it ends, or pass another "
                    "--checkpoint-dir",
                    folder_.string()));
  }
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".spdkfac-") && name.ends_with(".tmp")) fs::remove(entry.path(), error);
  }
}

CheckpointFolder::~CheckpointFolder() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::vector<fs::path> CheckpointFolder::files() const { return files_with(""); }

std::vector<fs::path> CheckpointFolder::damaged() const { return files_with(kDamaged); }

std::vector<fs::path> CheckpointFolder::files_with(const std::string& ending) const {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(ending)) continue;
    const std::int64_t step = step_of(name.substr(0, name.size() - ending.size()));
    if (step >= 0) found.emplace_back(step, entry.path());
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<fs::path> result;
  for (auto& [step, path] : found) result.push_back(std::move(path));
  return result;
}

fs::path CheckpointFolder::file_of(std::int64_t step) const {
  return folder_ / fmt::format("{}{:08}{}", kPrefix, step, kSuffix);
}

void CheckpointFolder::remove_old() const {
  const std::vector<fs::path> all = files();
  std::error_code ignored;
  for (std::size_t i = static_cast<std::size_t>(keep_); i < all.size(); ++i) {
    fs::remove(all[i], ignored);
  }
}

void CheckpointFolder::set_aside(const fs::path& file) const {
  std::error_code ignored;
  fs::rename(file, file.string() + kDamaged, ignored);
}

}  // namespace spdkfac::train
