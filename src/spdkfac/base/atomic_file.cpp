// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/base/atomic_file.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "spdkfac/base/error.h"

namespace spdkfac {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kReadWriteForAll = 0666;  // less the umask

// Makes a rename outlast a power cut, where the file system can.
void sync_folder(const fs::path& folder) {
  const FileDescriptor descriptor(
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.is_open()) ::fsync(descriptor.get());
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool FileDescriptor::close() { return ::close(std::exchange(descriptor_, -1)) == 0; }

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path_, ignored);
  if (fs::is_directory(status)) fail(EISDIR);
  target_ = fs::exists(status) ? fs::canonical(path_, ignored) : path_;
  for (int attempt = 0; !file_.is_open(); ++attempt) {
    temporary_ = target_.parent_path() / fmt::format(".spdkfac-{}-{}.tmp", ::getpid(), attempt);
    file_.reset(
        ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kReadWriteForAll));
    // Another thread, or a process of this id on another machine, may have taken the name.
    if (!file_.is_open() && errno != EEXIST) fail(errno);
  }
}

AtomicFile::~AtomicFile() {
  if (file_.is_open()) ::unlink(temporary_.c_str());
}

void AtomicFile::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) fail(errno);
    if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void AtomicFile::overwrite(std::uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno != EINTR) fail(errno);
    if (written <= 0) continue;
    bytes.remove_prefix(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
}

void AtomicFile::commit() {
  if (::fsync(file_.get()) != 0) fail(errno);
  if (!file_.close() || ::rename(temporary_.c_str(), target_.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary_.c_str());
    fail(error);
  }
  sync_folder(target_.parent_path());
}

void AtomicFile::fail(int error) const {
  throw ConfigError(fmt::format(
      "{}: cannot be written ({}); check the folder, its permissions and its free space",
      path_.string(), std::generic_category().message(error)));
}

}  // namespace spdkfac
