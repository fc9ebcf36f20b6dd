// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace spdkfac::train {

// The files step-00000123.ckpt of one run. A file appears whole or not at all, whenever the program
// or the machine stops, and carries a checksum. Only one program at a time has a folder.
class CheckpointFolder {
 public:
  // Makes the folder if need be, locks it, and removes what an earlier run left half written.
  CheckpointFolder(std::filesystem::path folder, int keep);
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  // Newest first.
  std::vector<std::filesystem::path> files() const;
  // Writes the content of a checkpoint, then removes all but the newest `keep`.
  void save(std::int64_t step, std::string content) const;
  // The content; an Error says why it cannot be read.
  std::string read(const std::filesystem::path& file) const;
  // Renames a damaged file to NAME.damaged, so that it no longer counts.
  void set_aside(const std::filesystem::path& file) const;

  const std::filesystem::path& path() const { return folder_; }

 private:
  std::filesystem::path folder_;
  int keep_;
  int descriptor_ = -1;
};

}  // namespace spdkfac::train
