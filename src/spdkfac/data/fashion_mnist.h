// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "spdkfac/data/dataset.h"

namespace spdkfac::data {

// Where Debian's package dataset-fashion-mnist installs it.
constexpr const char* kFashionMnistFolder = "/usr/share/datasets/fashion-mnist";

// 60000 or 10000 images of 1x28x28 in 10 classes, from IDX files, gzipped or not. Any data set in
// these files and this shape will do. Errors are ConfigErrors that name the file.
Dataset load_fashion_mnist(Split split, const std::filesystem::path& folder = kFashionMnistFolder);

}  // namespace spdkfac::data
