// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/base/tensor_file.h"

#include <cstring>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spdkfac/base/crc32.h"
#include "support/config_error.h"
#include "support/temporary_folder.h"

namespace spdkfac {
namespace {

using support::config_error;
using support::TemporaryFolder;
using testing::HasSubstr;

std::string bytes_of_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Two doubles, three floats, an empty tensor, a byte.
const std::vector<double> kDoubles = {1.5, -2};
const std::vector<float> kFloats = {3, 4, 5};

void write_sample(const std::filesystem::path& path) {
  TensorHeader header;
  header.metadata = {{"format", "test/1"}};
  header.tensors = {{"byte", "U8", {}},
                    {"floats", "F32", {3, 1}},
                    {"doubles", "F64", {2}},
                    {"none", "F32", {0, 7}}};
  aligned_order(header.tensors);
  TensorFileWriter writer(path, header);
  writer.append(kDoubles.data(), 16);
  writer.append(kFloats.data(), 12);
  writer.append(nullptr, 0);
  writer.append("x", 1);
  writer.finish();
}

TEST(Crc32, MatchesTheKnownValue) {
  EXPECT_EQ(crc32(0, "123456789", 9), 0xcbf43926U);  // the check value of the standard
  EXPECT_EQ(crc32(crc32(0, "12345", 5), "6789", 4), 0xcbf43926U);
  EXPECT_EQ(crc32(0, "", 0), 0U);
}

TEST(TensorFile, ReadsBackWhatWasWritten) {
  const TemporaryFolder folder;
  write_sample(folder / "file");
  const TensorFileReader reader(folder / "file");
  EXPECT_EQ(reader.header().metadata.at("format"), "test/1");
  std::vector<double> doubles(2);
  reader.read(reader.index({"doubles", "F64", {2}}), doubles.data());
  EXPECT_EQ(doubles, kDoubles);
  std::vector<float> floats(3);
  reader.read(reader.index({"floats", "F32", {3, 1}}), floats.data());
  EXPECT_EQ(floats, kFloats);
  EXPECT_TRUE(reader.contains("none"));
  EXPECT_FALSE(reader.contains("nothing"));
  EXPECT_THAT(config_error([&] {
                reader.index({"floats", "F32", {3}});
              }),
              HasSubstr("tensor floats is F32 [3, 1], but F32 [3] here"));
  EXPECT_THAT(config_error([&] {
                reader.index({"other", "F32", {3}});
              }),
              HasSubstr("has no tensor other"));
}

TEST(TensorFile, HasTheLayoutOfSafetensors) {
  const TemporaryFolder folder;
  write_sample(folder / "file");
  const std::string content = bytes_of_file(folder / "file");
  std::uint64_t length = 0;
  std::memcpy(&length, content.data(), 8);
  const std::string header = content.substr(8, length);
  EXPECT_EQ((8 + length) % 8, 0U);
  EXPECT_THAT(header, testing::StartsWith(R"({"__metadata__":{"crc32":")"));
  EXPECT_THAT(header,
              HasSubstr(R"("floats":{"dtype":"F32","shape":[3,1],"data_offsets":[16,28]})"));
  EXPECT_EQ(content.size(), 8 + length + 16 + 12 + 1);
  EXPECT_EQ(std::memcmp(content.data() + 8 + length, kDoubles.data(), 16), 0);
}

TEST(TensorFile, EveryChangedByteIsDamage) {
  const TemporaryFolder folder;
  write_sample(folder / "file");
  const std::string good = bytes_of_file(folder / "file");
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    folder.write("bad", bad);
    EXPECT_THROW(TensorFileReader(folder / "bad"), DamagedFile) << "byte " << i;
    folder.write("bad", good.substr(0, i));
    EXPECT_THROW(TensorFileReader(folder / "bad"), DamagedFile) << "length " << i;
  }
  folder.write("bad", good + "x");
  EXPECT_THROW(TensorFileReader(folder / "bad"), DamagedFile);
}

TEST(TensorFile, ThatIsNotThereIsNoDamage) {
  const TemporaryFolder folder;
  EXPECT_THAT(config_error([&] { TensorFileReader(folder / "nothing"); }),
              HasSubstr("cannot be opened"));
  EXPECT_THAT(config_error([&] { TensorFileReader reader(folder.path()); }),
              HasSubstr("is not a file"));
}

TEST(TensorFile, AppearsWholeOrNotAtAll) {
  const TemporaryFolder folder;
  {
    TensorFileWriter writer(folder / "file", {{}, {{"a", "F32", {1}}}});
    writer.append("1234", 4);
    EXPECT_FALSE(std::filesystem::exists(folder / "file"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(TensorHeader, IsCheckedFieldByField) {
  const auto error = [](const std::string& text) {
    return config_error([&] { parse_tensor_header(text, 8, "file"); });
  };
  const auto one = [](const std::string& fields) { return "{\"a\":{" + fields + "}}"; };
  EXPECT_EQ(parse_tensor_header(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), 8, "f")
                .tensors.front(),
            (TensorSpec{"a", "F32", {2}}));
  const std::vector<std::pair<std::string, std::string>> cases = {
      {one(R"("dtype":"F31","shape":[2],"data_offsets":[0,8])"), "a.dtype"},
      {one(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), "a.shape[0]"},
      {one(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), "expected [0, 8] (got [0, 4])"},
      {one(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), "got [8, 0]"},
      {one(R"("dtype":"F32","shape":[2],"data_offsets":[4,12])"), "got [4, 12]"},
      {one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), "take 4 bytes, but there are 8"},
      {one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1)"), "more"},
      {one(R"("dtype":"F32","shape":[2])"), "data_offsets"},
      {one(R"("dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0])"),
       "too many elements"},
      {one(R"("dtype":"F64","shape":[9223372036854775807],"data_offsets":[0,8])"), "a.shape[0]"},
      {R"({"__metadata__":{"x":1}})", "__metadata__.x"},
      {R"({"a":{},"a":{}})", "a"},
      {"[]", "object"},
      {"{", "file"},
  };
  for (const auto& [text, expected] : cases) EXPECT_THAT(error(text), HasSubstr(expected)) << text;
}

}  // namespace
}  // namespace spdkfac
