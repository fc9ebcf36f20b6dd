// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/data/cifar10.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/data/file_bytes.h"

namespace spdkfac::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kCifarClasses = 10;
constexpr std::int64_t kPixels = 3 * 32 * 32;
constexpr std::int64_t kRecord = 1 + kPixels;  // label, then red, green and blue planes
constexpr const char* kCifarRemedy = "--data-dir must contain the files of cifar-10-binary.tar.gz";

// [n, 3073]
at::Tensor read_records(const fs::path& path) {
  std::vector<std::uint8_t> bytes = read_bytes(path, kCifarRemedy);
  const auto fail = [&](const std::string& what) {
    throw ConfigError(fmt::format("{}: {}; {}", path.string(), what, kCifarRemedy));
  };
  const auto size = static_cast<std::int64_t>(bytes.size());
  if (size == 0) fail("the file is empty");
  if (size % kRecord != 0) {
    fail(fmt::format("has {} bytes, which is not a multiple of {}", size, kRecord));
  }
  for (std::int64_t i = 0; i < size / kRecord; ++i) {
    const int label = bytes[static_cast<std::size_t>(i * kRecord)];
    if (label >= kCifarClasses) {
      fail(fmt::format("label {} of image {} is out of range (0 to {})", label, i,
                       kCifarClasses - 1));
    }
  }
  return at::from_blob(bytes.data(), {size / kRecord, kRecord}, at::kByte).clone();
}

}  // namespace

Dataset load_cifar10(Split split, const fs::path& folder) {
  std::error_code ignored;
  const fs::path inside = folder / "cifar-10-batches-bin";
  const fs::path place = fs::is_directory(inside, ignored) ? inside : folder;
  std::vector<std::string> names = {"test_batch.bin"};
  if (split == Split::kTrain) {
    names.clear();
    for (int i = 1; i <= 5; ++i) names.push_back(fmt::format("data_batch_{}.bin", i));
  }
  std::vector<at::Tensor> parts;
  for (const std::string& name : names) {
    parts.push_back(read_records(place / name));
    // A file cut off between two records shows here.
    if (parts.back().size(0) != parts.front().size(0)) {
      throw ConfigError(fmt::format("{}: has {} images, but {} has {}; {}", (place / name).string(),
                                    parts.back().size(0), names.front(), parts.front().size(0),
                                    kCifarRemedy));
    }
  }
  const at::Tensor records = at::cat(parts);
  Dataset data;
  data.name = "cifar10";
  data.split = split;
  data.size = records.size(0);
  data.shape = {3, 32, 32};
  data.classes = kCifarClasses;
  // Of the training split, over all its pixels.
  data.mean = {0.4914, 0.4822, 0.4465};
  data.deviation = {0.2470, 0.2435, 0.2616};
  data.images = records.narrow(1, 1, kPixels).contiguous().view({data.size, 3, 32, 32});
  data.labels = records.select(1, 0).to(at::kLong);
  return data;
}

}  // namespace spdkfac::data
