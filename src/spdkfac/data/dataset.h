// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace spdkfac::data {

enum class Split { kTrain, kTest };

struct ImageShape {
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;

  std::int64_t pixels() const { return channels * height * width; }
  std::string text() const;  // 3x224x224
  bool operator==(const ImageShape&) const = default;
};

// What synthetic images are made of: a coarse pattern for each class, and noise of which each
// example takes another stretch. Small, whatever the number of examples.
struct SyntheticSource {
  at::Tensor patterns;  // [classes, C, h, w] with small h and w
  at::Tensor noise;     // [pixels + a number of offsets]
  std::uint64_t seed = 0;
};

// Examples that go through a model together: float [n, C, H, W] and int64 [n].
struct Batch {
  at::Tensor images;
  at::Tensor labels;

  std::int64_t size() const { return labels.size(0); }
};

// Labelled images, stored or made when asked for. Copies share the tensors.
struct Dataset {
  std::string name;
  Split split = Split::kTrain;
  std::int64_t size = 0;
  ImageShape shape;
  std::int64_t classes = 0;
  // Of each channel, with pixels from 0 to 1. Empty: the images are normalised as they are.
  std::vector<double> mean;
  std::vector<double> deviation;
  at::Tensor images;  // uint8 or float [N, C, H, W]; bytes count from 0 to 255
  at::Tensor labels;  // int64 [N]
  std::optional<SyntheticSource> synthetic;  // instead of both

  // With its tensors on that device, so that batches are gathered there.
  Dataset to(at::Device device) const;
};

// Those examples, on the device of the data set and not yet normalised; bytes stay bytes.
Batch gather(const Dataset& data, std::span<const std::int64_t> indices);

}  // namespace spdkfac::data
