// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <torch/nn.h>

#include "spdkfac/models/model.h"

namespace spdkfac::models {

// Values that make a residual network (He et al., arXiv:1512.03385).
struct ResNetShape {
  enum class Stem { kLargeImages, kSmallImages };  // 7×7 stride 2 and max-pool, or 3×3
  enum class Block { kBasic, kBottleneck };
  // Every stage but the first halves height and width. Bottlenecks put out 4 · channels.
  struct Stage {
    std::int64_t channels = 0;
    int blocks = 0;
  };

  Stem stem = Stem::kLargeImages;
  Block block = Block::kBottleneck;
  std::vector<Stage> stages;
};

ResNetShape resnet18_shape();
ResNetShape resnet50_shape();
ResNetShape resnet152_shape();

// Names, order of modules and weights as in torchvision; bottlenecks stride at their 3×3.
class ResNet : public Model {
 public:
  // All fields of `options` are set.
  ResNet(const ResNetShape& shape, const ModelOptions& options);
  torch::Tensor forward(torch::Tensor images) override;

 private:
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr};
  torch::nn::ReLU relu_{nullptr};
  torch::nn::MaxPool2d maxpool_{nullptr};  // empty for small images
  std::vector<torch::nn::Sequential> stages_;
  torch::nn::AdaptiveAvgPool2d avgpool_{nullptr};
  torch::nn::Linear fc_{nullptr};
};

}  // namespace spdkfac::models
