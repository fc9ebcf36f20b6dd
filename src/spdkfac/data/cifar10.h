// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "spdkfac/data/dataset.h"

namespace spdkfac::data {

// 50000 or 10000 images of 3x32x32 in 10 classes, from data_batch_1.bin to 5 or test_batch.bin in
// `folder` or its subfolder cifar-10-batches-bin. Errors are ConfigErrors that name the file.
Dataset load_cifar10(Split split, const std::filesystem::path& folder);

}  // namespace spdkfac::data
