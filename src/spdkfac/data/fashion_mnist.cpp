// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/data/fashion_mnist.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/data/idx_file.h"

namespace spdkfac::data {
namespace {

constexpr std::int64_t kSide = 28;
constexpr std::int64_t kFashionClasses = 10;
constexpr const char* kFashionRemedy = "apt-get install dataset-fashion-mnist, or pass --data-dir";

}  // namespace

Dataset load_fashion_mnist(Split split, const std::filesystem::path& folder) {
  const std::string prefix = split == Split::kTrain ? "train" : "t10k";
  const std::filesystem::path images_path = folder / (prefix + "-images-idx3-ubyte");
  const std::filesystem::path labels_path = folder / (prefix + "-labels-idx1-ubyte");
  const IdxFile images = read_idx(images_path, 3, kFashionRemedy);
  const IdxFile labels = read_idx(labels_path, 1, kFashionRemedy);
  const auto fail = [](const std::filesystem::path& path, const std::string& what) {
    throw ConfigError(fmt::format("{}: {}; {}", path.string(), what, kFashionRemedy));
  };
  if (images.sizes[1] != kSide || images.sizes[2] != kSide) {
    fail(images_path, fmt::format("has images of {}x{} (expected {}x{})", images.sizes[1],
                                  images.sizes[2], kSide, kSide));
  }
  const std::int64_t count = images.sizes[0];
  if (count == 0) fail(images_path, "has no images");
  if (labels.sizes[0] != count) {
    fail(labels_path, fmt::format("has {} labels for {} images", labels.sizes[0], count));
  }
  for (std::size_t i = 0; i < labels.values.size(); ++i) {
    if (labels.values[i] >= kFashionClasses) {
      fail(labels_path, fmt::format("label {} of image {} is out of range (0 to {})",
                                    labels.values[i], i, kFashionClasses - 1));
    }
  }
  Dataset data;
  data.name = "fashion-mnist";
  data.split = split;
  data.size = count;
  data.shape = {1, kSide, kSide};
  data.classes = kFashionClasses;
  // Of the training split of Fashion-MNIST.
  data.mean = {0.2860};
  data.deviation = {0.3530};
  // from_blob only looks at the bytes, which are copied at once.
  const auto tensor = [](const std::vector<std::uint8_t>& bytes, at::IntArrayRef sizes) {
    return at::from_blob(const_cast<std::uint8_t*>(bytes.data()), sizes, at::kByte);
  };
  data.images = tensor(images.values, {count, 1, kSide, kSide}).clone();
  data.labels = tensor(labels.values, {count}).to(at::kLong);
  return data;
}

}  // namespace spdkfac::data
