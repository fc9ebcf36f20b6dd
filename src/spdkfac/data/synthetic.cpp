// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/data/synthetic.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/data/index_tensor.h"
#include "spdkfac/data/shuffle.h"

namespace spdkfac::data {
namespace {

// Patterns of 8 by 8 cells: coarse enough to survive pooling.
constexpr std::int64_t kCells = 8;
// Weak against the noise of deviation 1, so that a network needs some steps.
constexpr double kPatternDeviation = 0.25;
// Stretches of noise that examples choose from.
constexpr std::int64_t kOffsets = 1 << 20;
constexpr std::int64_t kMaxPixels = std::int64_t{1} << 28;
constexpr std::int64_t kMaxClasses = 1'000'000;
constexpr std::int64_t kMaxExamples = 1'000'000'000;

enum Purpose : std::uint64_t { kPatterns, kNoise, kTrainOffsets, kTestOffsets };

// Nearly normal, exact in every digit on every machine: the sum of four 16-bit numbers.
at::Tensor normal_numbers(std::int64_t count, std::uint64_t seed, double deviation) {
  at::Tensor result = at::empty({count}, at::kFloat);
  float* values = result.data_ptr<float>();
  const double scale = deviation / (65536.0 * std::sqrt(4.0 / 12.0));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t bits = mix(seed, static_cast<std::uint64_t>(i));
    double sum = 0;
    for (int part = 0; part < 4; ++part) {
      sum += static_cast<double>((bits >> (16 * part)) & 0xffffU) - 32767.5;
    }
    values[i] = static_cast<float>(sum * scale);
  }
  return result;
}

void check(const char* what, std::int64_t value, std::int64_t max) {
  if (value >= 1 && value <= max) return;
  throw ConfigError(
      fmt::format("synthetic: {} must be from 1 to {} (got {}); change it", what, max, value));
}

}  // namespace

Dataset make_synthetic(Split split, const SyntheticOptions& options) {
  const ImageShape& shape = options.shape;
  for (const std::int64_t size : {shape.channels, shape.height, shape.width}) {
    check("each size of the images", size, 65536);
  }
  check("the pixels of an image", shape.pixels(), kMaxPixels);
  check("classes", options.classes, kMaxClasses);
  check("examples", options.examples, kMaxExamples);

  Dataset data;
  data.name = "synthetic";
  data.split = split;
  data.size = options.examples;
  data.shape = shape;
  data.classes = options.classes;
  const std::int64_t rows = std::min(kCells, shape.height);
  const std::int64_t columns = std::min(kCells, shape.width);
  SyntheticSource source;
  source.seed = options.seed;
  source.patterns = normal_numbers(options.classes * shape.channels * rows * columns,
                                   mix(options.seed, kPatterns), kPatternDeviation)
                        .view({options.classes, shape.channels, rows, columns});
  source.noise = normal_numbers(shape.pixels() + kOffsets, mix(options.seed, kNoise), 1);
  data.synthetic = std::move(source);
  return data;
}

Batch synthesize(const SyntheticSource& source, const ImageShape& shape, Split split,
                 std::span<const std::int64_t> indices) {
  std::vector<std::int64_t> classes(indices.size());
  std::vector<at::Tensor> noise(indices.size());
  const std::uint64_t seed =
      mix(source.seed, split == Split::kTrain ? kTrainOffsets : kTestOffsets);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    classes[i] = indices[i] % source.patterns.size(0);
    const std::uint64_t offset = mix(seed, static_cast<std::uint64_t>(indices[i])) % kOffsets;
    noise[i] = source.noise.narrow(0, static_cast<std::int64_t>(offset), shape.pixels());
  }
  at::Tensor labels = index_tensor(classes, source.patterns.device());
  if (indices.empty()) {
    return {at::empty({0, shape.channels, shape.height, shape.width}, source.noise.options()),
            std::move(labels)};
  }
  at::Tensor images = at::upsample_nearest2d(source.patterns.index_select(0, labels),
                                             at::IntArrayRef{shape.height, shape.width});
  images.add_(at::stack(noise).view_as(images));
  return {std::move(images), std::move(labels)};
}

}  // namespace spdkfac::data
