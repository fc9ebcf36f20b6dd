// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace spdkfac {

// Closes a file when it goes.
class FileDescriptor {
 public:
  explicit FileDescriptor(int descriptor = -1) : descriptor_(descriptor) {}
  ~FileDescriptor();
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  int get() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  void reset(int descriptor) { descriptor_ = descriptor; }
  // Reports what the file system kept back until now; false sets errno.
  bool close();

 private:
  int descriptor_;
};

// A file that appears under its name whole or not at all: it is written under a temporary name in
// the same folder, .spdkfac-*.tmp, and renamed by commit(). Without commit() nothing is left. What
// cannot be written is a ConfigError.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void append(std::string_view bytes);
  // Replaces bytes that were appended.
  void overwrite(std::uint64_t offset, std::string_view bytes);
  void commit();

 private:
  [[noreturn]] void fail(int error) const;

  std::filesystem::path path_;
  std::filesystem::path target_;  // what `path` names through a symbolic link
  std::filesystem::path temporary_;
  FileDescriptor file_;
};

}  // namespace spdkfac
