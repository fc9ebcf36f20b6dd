// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/models/small.h"

#include <cstdint>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spdkfac/base/error.h"
#include "spdkfac/models/layers.h"

namespace spdkfac::models {

namespace nn = torch::nn;

namespace {

constexpr std::int64_t kSide = 28;
constexpr std::int64_t kPooledSide = kSide / 4;
constexpr std::int64_t kChannels1 = 32;
constexpr std::int64_t kChannels2 = 64;
constexpr std::int64_t kHidden = 128;

nn::Conv2d conv3x3_with_bias(std::int64_t in, std::int64_t out) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1));
}

}  // namespace

Cnn28::Cnn28(const ModelOptions& options)
    : conv1_(conv3x3_with_bias(options.channels, scaled(kChannels1, options.width))),
      conv2_(
          conv3x3_with_bias(scaled(kChannels1, options.width), scaled(kChannels2, options.width))),
      fc1_(scaled(kChannels2, options.width) * kPooledSide * kPooledSide,
           scaled(kHidden, options.width)),
      fc2_(scaled(kHidden, options.width), options.classes) {
  register_module("conv1", conv1_);
  register_module("conv2", conv2_);
  register_module("fc1", fc1_);
  register_module("fc2", fc2_);
}

torch::Tensor Cnn28::forward(torch::Tensor images) {
  if (images.dim() != 4 || images.size(2) != kSide || images.size(3) != kSide) {
    throw ConfigError(
        fmt::format("model: cnn28 takes images of 28x28 (got a tensor [{}]); resize them, or use "
                    "resnet20",
                    fmt::join(images.sizes(), ", ")));
  }
  // Not in place: who watches the output of a layer must find it as the layer left it.
  torch::Tensor x = torch::max_pool2d(torch::relu(conv1_(images)), 2);
  x = torch::max_pool2d(torch::relu(conv2_(x)), 2);
  return fc2_(torch::relu(fc1_(x.flatten(1))));
}

ResNetShape resnet20_shape() {
  return {.stem = ResNetShape::Stem::kSmallImages,
          .block = ResNetShape::Block::kBasic,
          .stages = {{16, 3}, {32, 3}, {64, 3}}};
}

}  // namespace spdkfac::models
