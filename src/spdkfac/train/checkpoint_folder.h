// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace spdkfac::train {

// The files step-00000123.ckpt of one run, each a TensorFile. Only one program at a time has a
// folder.
class CheckpointFolder {
 public:
  // Makes the folder if need be, locks it, and removes what an earlier run left half written.
  CheckpointFolder(std::filesystem::path folder, int keep);
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  // Newest first.
  std::vector<std::filesystem::path> files() const;
  // What set_aside() has left, newest first.
  std::vector<std::filesystem::path> damaged() const;
  // The checkpoint of a step.
  std::filesystem::path file_of(std::int64_t step) const;
  // Removes all but the newest `keep`.
  void remove_old() const;
  // Renames a damaged file to NAME.damaged, so that it no longer counts.
  void set_aside(const std::filesystem::path& file) const;

  const std::filesystem::path& path() const { return folder_; }

 private:
  std::vector<std::filesystem::path> files_with(const std::string& ending) const;

  std::filesystem::path folder_;
  int keep_;
  int descriptor_ = -1;
};

}  // namespace spdkfac::train
