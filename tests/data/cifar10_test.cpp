// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/data/cifar10.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support/config_error.h"
#include "support/temporary_folder.h"

namespace spdkfac {
namespace {

using support::TemporaryFolder;

const std::string kCifarAdvice = "; --data-dir must contain the files of cifar-10-binary.tar.gz";

// Red pixels have the value of the label, green ones 100, blue ones 200.
std::string record(char label) {
  return std::string(1 + 1024, label) + std::string(1024, 100) +
         std::string(1024, static_cast<char>(200));
}

void write_all(const TemporaryFolder& folder, const std::string& below = "") {
  for (char i = 1; i <= 5; ++i) {
    folder.write(below + "data_batch_" + std::to_string(i) + ".bin",
                 record(i) + record(static_cast<char>(i + 1)));
  }
  folder.write(below + "test_batch.bin", record(0) + record(9) + record(7));
}

TEST(Cifar10, ReadsAllBatchesInOrder) {
  TemporaryFolder folder;
  write_all(folder);
  const data::Dataset train = data::load_cifar10(data::Split::kTrain, folder.path());
  EXPECT_EQ(train.size, 10);
  EXPECT_TRUE(train.labels.equal(at::tensor({1, 2, 2, 3, 3, 4, 4, 5, 5, 6}, at::kLong)));
  EXPECT_EQ(train.images.sizes(), (at::IntArrayRef{10, 3, 32, 32}));
  EXPECT_TRUE(train.images[9][0].eq(6).all().item<bool>());
  EXPECT_TRUE(train.images[9][1].eq(100).all().item<bool>());
  EXPECT_TRUE(train.images[0][2].eq(200).all().item<bool>());
  const data::Dataset test = data::load_cifar10(data::Split::kTest, folder.path());
  EXPECT_TRUE(test.labels.equal(at::tensor({0, 9, 7}, at::kLong)));
}

TEST(Cifar10, LooksIntoTheFolderOfTheArchive) {
  TemporaryFolder folder;
  std::filesystem::create_directory(folder / "cifar-10-batches-bin");
  write_all(folder, "cifar-10-batches-bin/");
  EXPECT_EQ(data::load_cifar10(data::Split::kTrain, folder.path()).size, 10);
}

TEST(Cifar10, DamagedFilesAreNamed) {
  struct Damage {
    std::string content;
    std::string message;
  };
  for (const Damage& damage :
       {Damage{"", "the file is empty"},
        Damage{record(1) + record(2).substr(1), "has 6145 bytes, which is not a multiple of 3073"},
        Damage{record(1) + record(2) + "x", "has 6147 bytes, which is not a multiple of 3073"},
        Damage{record(1) + record(10), "label 10 of image 1 is out of range (0 to 9)"},
        Damage{record(1), "has 1 images, but data_batch_1.bin has 2"}}) {
    TemporaryFolder folder;
    write_all(folder);
    folder.write("data_batch_3.bin", damage.content);
    EXPECT_EQ(
        support::config_error([&] { data::load_cifar10(data::Split::kTrain, folder.path()); }),
        folder.path().string() + "/data_batch_3.bin: " + damage.message + kCifarAdvice);
  }
}

TEST(Cifar10, MissingFilesAreNamed) {
  TemporaryFolder folder;
  EXPECT_EQ(support::config_error([&] { data::load_cifar10(data::Split::kTest, folder.path()); }),
            folder.path().string() +
                "/test_batch.bin: cannot be opened (No such file or directory)" + kCifarAdvice);
}

}  // namespace
}  // namespace spdkfac
