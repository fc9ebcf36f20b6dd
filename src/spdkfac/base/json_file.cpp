// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spdkfac/base/atomic_file.h"
#include "spdkfac/base/error.h"
#include "spdkfac/base/json.h"

namespace spdkfac {
namespace {

namespace fs = std::filesystem;

// Far above any model or trace we read; keeps a wrong path from filling the memory.
constexpr std::size_t kMaxFileMebibytes = 256;
constexpr std::size_t kMaxFileBytes = kMaxFileMebibytes * 1024 * 1024;
constexpr std::size_t kReadChunkBytes = std::size_t{64} * 1024;

std::string errno_text(int error) { return std::generic_category().message(error); }

[[noreturn]] void fail_too_large(const fs::path& path) {
  throw ConfigError(fmt::format("{}: the file is larger than {} MiB; check the path", path.string(),
                                kMaxFileMebibytes));
}

[[noreturn]] void fail_write(const fs::path& path, int error) {
  throw ConfigError(fmt::format(
      "{}: cannot be written ({}); check the folder, its permissions and its free space",
      path.string(), errno_text(error)));
}

// False sets errno.
bool write_all(int descriptor, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(descriptor, content.data(), content.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

// A device or pipe cannot be replaced by a rename, nor should it: think of /dev/null.
void write_in_place(const fs::path& path, std::string_view content) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.is_open() || !write_all(file.get(), content) || !file.close()) fail_write(path, errno);
}

}  // namespace

Json read_json_file(const fs::path& path) {
  const std::string where = path.string();
  const auto fail_read = [&](const char* what, int error) {
    throw ConfigError(
        fmt::format("{}: cannot be {} ({}); check the path", where, what, errno_text(error)));
  };
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) fail_read("opened", errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail_read("read", errno);
  if (S_ISDIR(status.st_mode)) {
    throw ConfigError(fmt::format("{}: is a directory; give the path of a file", where));
  }
  if (status.st_size > static_cast<off_t>(kMaxFileBytes)) fail_too_large(path);

  // Read to the end whatever the size says: pipes have none.
  std::string text;
  text.reserve(static_cast<std::size_t>(status.st_size));
  std::array<char, kReadChunkBytes> chunk;
  while (true) {
    const ssize_t size = ::read(file.get(), chunk.data(), chunk.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) fail_read("read", errno);
    if (size == 0) break;
    text.append(chunk.data(), static_cast<std::size_t>(size));
    if (text.size() > kMaxFileBytes) fail_too_large(path);
  }
  if (text.empty()) {
    throw ConfigError(
        fmt::format("{}: the file is empty; check that it was written completely", where));
  }
  return parse_json(text, where);
}

void write_file_atomically(const fs::path& path, std::string_view content) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status)) {
    return write_in_place(path, content);
  }
  AtomicFile file(path);
  file.append(content);
  file.commit();
}

}  // namespace spdkfac
