// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/train/checkpoint_folder.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>
#include <zlib.h>

#include "spdkfac/base/error.h"
#include "spdkfac/base/json.h"

namespace spdkfac::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSuffix = ".ckpt";

// Behind the content, where readers of archives do not mind it.
std::string trailer(std::string_view content) {
  const auto sum = crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size());
  return fmt::format("\nspdkfac.checkpoint/1 size={:020} crc32={:08x}\n", content.size(), sum);
}

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

std::vector<fs::path> CheckpointFolder::files() const {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const std::int64_t step = step_of(entry.path().filename().string());
    if (step >= 0) found.emplace_back(step, entry.path());
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<fs::path> result;
  for (auto& [step, path] : found) result.push_back(std::move(path));
  return result;
}

void CheckpointFolder::save(std::int64_t step, std::string content) const {
  content += trailer(content);
  write_file_atomically(folder_ / fmt::format("{}{:08}{}", kPrefix, step, kSuffix), content);
  const std::vector<fs::path> all = files();
  std::error_code ignored;
  for (std::size_t i = static_cast<std::size_t>(keep_); i < all.size(); ++i) {
    fs::remove(all[i], ignored);
  }
}

std::string CheckpointFolder::read(const fs::path& file) const {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  const auto fail = [&](const std::string& why) {
    throw Error(fmt::format("{}: cannot be read ({})", file.string(), why));
  };
  if (!in) fail(std::generic_category().message(errno));
  const std::streamoff size = in.tellg();
  std::string content(static_cast<std::size_t>(std::max<std::streamoff>(size, 0)), '\0');
  in.seekg(0);
  if (!in.read(content.data(), size)) fail(std::generic_category().message(errno));
  const std::size_t length = trailer("").size();
  if (content.size() < length) fail(fmt::format("it has only {} bytes", content.size()));
  const std::string end = content.substr(content.size() - length);
  content.resize(content.size() - length);
  if (end != trailer(content)) fail("its checksum does not match");
  return content;
}

void CheckpointFolder::set_aside(const fs::path& file) const {
  std::error_code ignored;
  fs::rename(file, file.string() + ".damaged", ignored);
}

}  // namespace spdkfac::train
