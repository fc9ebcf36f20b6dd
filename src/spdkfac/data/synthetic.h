// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "spdkfac/data/dataset.h"

namespace spdkfac::data {

struct SyntheticOptions {
  ImageShape shape{3, 224, 224};
  std::int64_t classes = 1000;
  std::int64_t examples = 0;
  std::uint64_t seed = 0;
};

// Images that can be told apart, with classes in turn: example i has class i modulo `classes`. Both
// splits of one seed share the patterns. Options out of range are ConfigErrors.
Dataset make_synthetic(Split split, const SyntheticOptions& options);

// Images and labels of those examples, on the device of the source.
Batch synthesize(const SyntheticSource& source, const ImageShape& shape, Split split,
                 std::span<const std::int64_t> indices);

}  // namespace spdkfac::data
