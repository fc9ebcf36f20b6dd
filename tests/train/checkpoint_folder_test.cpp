// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/train/checkpoint_folder.h"

#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spdkfac/base/error.h"
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

std::string error_of(const CheckpointFolder& folder, const std::string& name) {
  try {
    folder.read(folder.path() / name);
  } catch (const Error& error) {
    const std::string text = error.what();
    return text.substr(folder.path().string().size() + 1);
  }
  return "(no error)";
}

TEST(CheckpointFolder, KeepsTheNewestAndReadsThemBack) {
  const TemporaryFolder temporary;
  const CheckpointFolder folder(temporary / "new/run", 2);
  folder.save(9, "nine");
  folder.save(10, std::string("t\0n", 3));
  folder.save(100'000'000, "many");
  EXPECT_THAT(names(folder), ElementsAre("step-100000000.ckpt", "step-00000010.ckpt"));
  EXPECT_EQ(folder.read(folder.files()[1]), std::string("t\0n", 3));
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

TEST(CheckpointFolder, EveryChangedByteIsFound) {
  const TemporaryFolder temporary;
  const CheckpointFolder folder(temporary.path(), 9);
  folder.save(1, "content");
  const auto file = folder.files().front();
  std::ifstream in(file, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  const std::string name = file.filename().string();
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    temporary.write(name, bad);
    EXPECT_EQ(error_of(folder, name), name + ": cannot be read (its checksum does not match)")
        << "byte " << i;
    temporary.write(name, good.substr(0, i));
    EXPECT_THAT(error_of(folder, name), testing::HasSubstr("cannot be read")) << "length " << i;
  }
  temporary.write(name, good + "x");
  EXPECT_THAT(error_of(folder, name), testing::HasSubstr("cannot be read"));
  temporary.write(name, good);
  EXPECT_EQ(folder.read(file), "content");
}

TEST(CheckpointFolder, ADamagedFileNoLongerCounts) {
  const TemporaryFolder temporary;
  const CheckpointFolder folder(temporary.path(), 1);
  temporary.write("step-00000007.ckpt", "x");
  folder.set_aside(folder.files().front());
  folder.save(5, "five");  // would lose to step 7
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
