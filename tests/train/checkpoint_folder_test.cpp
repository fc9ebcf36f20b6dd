// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/train/checkpoint_folder.h"

#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spdkfac/base/tensor_file.h"
#include "support/config_error.h"
#include "support/temporary_folder.h"

namespace spdkfac::train {
namespace {

using support::TemporaryFolder;
using testing::ElementsAre;

std::vector<std::string> names(const CheckpointFolder& folder) {
  std::vector<std::string> result;
  for (const auto& file : folder.files()) result.push_back(file.filename().string());
  return result;
}

void save(const CheckpointFolder& folder, std::int64_t step) {
  TensorFileWriter(folder.file_of(step), {}).finish();
  folder.remove_old();
}

TEST(CheckpointFolder, KeepsTheNewest) {
  const TemporaryFolder temporary;
  const CheckpointFolder folder(temporary / "new/run", 2);
  for (const std::int64_t step : {9, 10, 100'000'000}) save(folder, step);
  EXPECT_THAT(names(folder), ElementsAre("step-100000000.ckpt", "step-00000010.ckpt"));
}

TEST(CheckpointFolder, IgnoresOtherFilesAndRemovesHalfWrittenOnes) {
  const TemporaryFolder temporary;
  for (const char* name : {"step-5.ckpt", "step-0000000x.ckpt", "step-00000001.ckpt.damaged",
                           "notes.txt", ".spdkfac-12-0.tmp"}) {
    temporary.write(name, "x");
  }
  const CheckpointFolder folder(temporary.path(), 1);
  EXPECT_THAT(names(folder), ElementsAre());
  EXPECT_FALSE(std::filesystem::exists(temporary / ".spdkfac-12-0.tmp"));
  EXPECT_TRUE(std::filesystem::exists(temporary / "notes.txt"));
}

TEST(CheckpointFolder, ADamagedFileNoLongerCounts) {
  const TemporaryFolder temporary;
  const CheckpointFolder folder(temporary.path(), 1);
  temporary.write("step-00000007.ckpt", "x");
  EXPECT_TRUE(folder.damaged().empty());
  folder.set_aside(folder.files().front());
  EXPECT_THAT(folder.damaged(), ElementsAre(temporary / "step-00000007.ckpt.damaged"));
  save(folder, 5);  // would lose to step 7
  EXPECT_THAT(names(folder), ElementsAre("step-00000005.ckpt"));
}

TEST(CheckpointFolder, ASecondRunIsTurnedAway) {
  const TemporaryFolder temporary;
  std::optional<CheckpointFolder> first(std::in_place, temporary.path(), 1);
  EXPECT_EQ(support::config_error([&] { CheckpointFolder(temporary.path(), 1); }),
            temporary.path().string() +
                ": another run is using this folder; wait until it ends, or pass another "
                "--checkpoint-dir");
  first.reset();
  EXPECT_NO_THROW(CheckpointFolder(temporary.path(), 1));
}

TEST(CheckpointFolder, APathThatIsAFileIsAMistake) {
  const TemporaryFolder temporary;
  temporary.write("file", "x");
  const std::string remedy = "; pass another --checkpoint-dir";
  for (const char* name : {"file", "file/below"}) {
    EXPECT_EQ(
        support::config_error([&] { CheckpointFolder(temporary / name, 1); }),
        (temporary / name).string() + ": the folder cannot be created (Not a directory)" + remedy);
  }
}

}  // namespace
}  // namespace spdkfac::train
