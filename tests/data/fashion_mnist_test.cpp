// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/data/fashion_mnist.h"

#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "support/config_error.h"
#include "support/temporary_folder.h"

namespace spdkfac {
namespace {

using support::TemporaryFolder;

const std::string kFashionAdvice = "; apt-get install dataset-fashion-mnist, or pass --data-dir";

std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

std::string idx(std::initializer_list<std::uint32_t> sizes, const std::string& values) {
  std::string bytes = big_endian(0x800 + static_cast<std::uint32_t>(sizes.size()));
  for (const std::uint32_t size : sizes) bytes += big_endian(size);
  return bytes + values;
}

// Pixel p of image i is i + p modulo 256.
std::string images(std::uint32_t count) {
  std::string values;
  for (std::uint32_t i = 0; i < count; ++i) {
    for (std::uint32_t p = 0; p < 784; ++p) values += static_cast<char>(i + p);
  }
  return idx({count, 28, 28}, values);
}

std::string labels(const std::string& values) {
  return idx({static_cast<std::uint32_t>(values.size())}, values);
}

std::string gzip(const std::string& bytes) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string result(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(result.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  result.resize(stream.total_out);
  deflateEnd(&stream);
  return result;
}

const std::string kLabels("\x00\x09\x03", 3);

TEST(FashionMnist, ReadsPlainAndGzippedFiles) {
  TemporaryFolder folder;
  folder.write("t10k-images-idx3-ubyte.gz", gzip(images(3)));
  folder.write("t10k-labels-idx1-ubyte", labels(kLabels));
  const data::Dataset data = data::load_fashion_mnist(data::Split::kTest, folder.path());
  EXPECT_EQ(data.size, 3);
  EXPECT_EQ(data.classes, 10);
  EXPECT_EQ(data.shape.text(), "1x28x28");
  EXPECT_EQ(data.images.sizes(), (at::IntArrayRef{3, 1, 28, 28}));
  EXPECT_EQ(data.images[2][0][1][5].item<int>(), 2 + 28 + 5);
  EXPECT_TRUE(data.labels.equal(at::tensor({0, 9, 3}, at::kLong)));
}

TEST(FashionMnist, ReadsMoreThanOneChunk) {
  TemporaryFolder folder;
  folder.write("train-images-idx3-ubyte.gz", gzip(images(3000)));  // 2.35 MB
  folder.write("train-labels-idx1-ubyte.gz", gzip(labels(std::string(3000, '\x01'))));
  const data::Dataset data = data::load_fashion_mnist(data::Split::kTrain, folder.path());
  EXPECT_EQ(data.images[2999][0][0][0].item<int>(), 2999 % 256);
}

struct Damage {
  std::string name;
  std::string images;
  std::string labels;
  std::string message;  // behind the folder
};
void PrintTo(const Damage& damage, std::ostream* out) { *out << damage.name; }

class DamagedFashionMnist : public testing::TestWithParam<Damage> {};

TEST_P(DamagedFashionMnist, IsNamedWithItsFile) {
  TemporaryFolder folder;
  if (!GetParam().images.empty()) folder.write("train-images-idx3-ubyte.gz", GetParam().images);
  if (!GetParam().labels.empty()) folder.write("train-labels-idx1-ubyte", GetParam().labels);
  EXPECT_EQ(
      support::config_error([&] { data::load_fashion_mnist(data::Split::kTrain, folder.path()); }),
      folder.path().string() + "/train-" + GetParam().message + kFashionAdvice);
}

std::string flipped(std::string bytes, std::size_t at) {
  bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
  return bytes;
}

const std::string kPacked = gzip(images(3));

INSTANTIATE_TEST_SUITE_P(
    Table, DamagedFashionMnist,
    testing::Values(
        Damage{"no images", "", labels(kLabels),
               "images-idx3-ubyte.gz: cannot be opened (No such file or directory)"},
        Damage{"no labels", kPacked, "",
               "labels-idx1-ubyte.gz: cannot be opened (No such file or directory)"},
        Damage{"text", "no gzip", labels(kLabels),
               "images-idx3-ubyte.gz: is too short for an IDX file (7 bytes of content)"},
        Damage{"longer text", "this is neither gzip nor IDX data", labels(kLabels),
               "images-idx3-ubyte.gz: is not an IDX file of bytes in 3 dimensions (starts with "
               "74686973, not 00000803)"},
        Damage{"labels as images", gzip(labels(std::string(100, '\x01'))), labels(kLabels),
               "images-idx3-ubyte.gz: is not an IDX file of bytes in 3 dimensions (starts with "
               "00000801, not 00000803)"},
        Damage{"gzip cut off", kPacked.substr(0, kPacked.size() / 2), labels(kLabels),
               "images-idx3-ubyte.gz: the gzip data ends too early (after " +
                   std::to_string(kPacked.size() / 2) + " bytes)"},
        Damage{"gzip without its last byte", kPacked.substr(0, kPacked.size() - 1), labels(kLabels),
               "images-idx3-ubyte.gz: the gzip data ends too early (after " +
                   std::to_string(kPacked.size() - 1) + " bytes)"},
        Damage{"gzip header only", kPacked.substr(0, 2), labels(kLabels),
               "images-idx3-ubyte.gz: the gzip data ends too early (after 2 bytes)"},
        Damage{"gzip checksum", flipped(kPacked, kPacked.size() - 6), labels(kLabels),
               "images-idx3-ubyte.gz: the gzip data is damaged (incorrect data check)"},
        Damage{"gzip length", flipped(kPacked, kPacked.size() - 3), labels(kLabels),
               "images-idx3-ubyte.gz: the gzip data is damaged (incorrect length check)"},
        Damage{"gzip method", flipped(kPacked, 2), labels(kLabels),
               "images-idx3-ubyte.gz: the gzip data is damaged (unknown compression method)"},
        Damage{"bytes behind the gzip data", kPacked + "xyz", labels(kLabels),
               "images-idx3-ubyte.gz: 3 bytes after the end of the gzip data"},
        Damage{"image too few", gzip(images(3).substr(0, 16 + 2 * 784)), labels(kLabels),
               "images-idx3-ubyte.gz: has 1568 bytes after its header, which announces 2352"},
        Damage{"byte too many", gzip(images(3) + "x"), labels(kLabels),
               "images-idx3-ubyte.gz: has 2353 bytes after its header, which announces 2352"},
        Damage{"sizes beyond 64 bits", gzip(idx({0xffffffff, 0xffffffff, 0xffffffff}, "x")),
               labels(kLabels),
               "images-idx3-ubyte.gz: has 1 bytes after its header, which announces "
               "79228162458924105372415295488"},
        Damage{"other size", gzip(idx({1, 2, 3}, "abcdef")), labels(kLabels),
               "images-idx3-ubyte: has images of 2x3 (expected 28x28)"},
        Damage{"none", gzip(images(0)), labels(""), "images-idx3-ubyte: has no images"},
        Damage{"label too few", kPacked, labels(kLabels.substr(1)),
               "labels-idx1-ubyte: has 2 labels for 3 images"},
        Damage{"label out of range", kPacked, labels(std::string("\x00\x0a\x03", 3)),
               "labels-idx1-ubyte: label 10 of image 1 is out of range (0 to 9)"}));

TEST(FashionMnist, InstalledOneHasTheKnownStatistics) {
  if (!std::filesystem::exists(data::kFashionMnistFolder)) {
    GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  }
  const data::Dataset train = data::load_fashion_mnist(data::Split::kTrain);
  const data::Dataset test = data::load_fashion_mnist(data::Split::kTest);
  EXPECT_EQ(train.size, 60000);
  EXPECT_EQ(test.size, 10000);
  EXPECT_TRUE(at::bincount(train.labels).equal(at::full({10}, 6000, at::kLong)));
  EXPECT_TRUE(at::bincount(test.labels).equal(at::full({10}, 1000, at::kLong)));
  const at::Tensor pixels = train.images.to(at::kDouble).div_(255);
  EXPECT_NEAR(pixels.mean().item<double>(), train.mean[0], 5e-5);  // four digits are given
  EXPECT_NEAR(pixels.std().item<double>(), train.deviation[0], 5e-5);
}

}  // namespace
}  // namespace spdkfac
