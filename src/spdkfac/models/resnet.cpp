// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/models/resnet.h"

#include <memory>
#include <string>

#include "spdkfac/models/layers.h"

namespace spdkfac::models {

namespace nn = torch::nn;

namespace {

constexpr std::int64_t kExpansion = 4;  // of a bottleneck

struct BlockShape {
  std::int64_t in = 0;
  std::int64_t inner = 0;
  std::int64_t out = 0;
  std::int64_t stride = 1;
  bool downsample = false;
};

// The way around the block where it changes the shape; empty elsewhere.
nn::Sequential make_downsample(const BlockShape& shape) {
  if (!shape.downsample) return nullptr;
  return nn::Sequential(conv2d(shape.in, shape.out, 1, shape.stride), nn::BatchNorm2d(shape.out));
}

class BasicBlock : public nn::Module {
 public:
  explicit BasicBlock(const BlockShape& shape)
      : conv1_(register_module("conv1", conv2d(shape.in, shape.inner, 3, shape.stride, 1))),
        bn1_(register_module("bn1", nn::BatchNorm2d(shape.inner))),
        relu_(register_module("relu", relu_in_place())),
        conv2_(register_module("conv2", conv2d(shape.inner, shape.out, 3, 1, 1))),
        bn2_(register_module("bn2", nn::BatchNorm2d(shape.out))),
        downsample_(make_downsample(shape)) {
    if (downsample_) register_module("downsample", downsample_);
  }

  torch::Tensor forward(const torch::Tensor& input) {
    torch::Tensor x = relu_(bn1_(conv1_(input)));
    x = bn2_(conv2_(x));
    x += downsample_ ? downsample_->forward(input) : input;
    return relu_(x);
  }

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  nn::ReLU relu_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d bn2_;
  nn::Sequential downsample_;
};

class Bottleneck : public nn::Module {
 public:
  explicit Bottleneck(const BlockShape& shape)
      : conv1_(register_module("conv1", conv2d(shape.in, shape.inner, 1))),
        bn1_(register_module("bn1", nn::BatchNorm2d(shape.inner))),
        conv2_(register_module("conv2", conv2d(shape.inner, shape.inner, 3, shape.stride, 1))),
        bn2_(register_module("bn2", nn::BatchNorm2d(shape.inner))),
        conv3_(register_module("conv3", conv2d(shape.inner, shape.out, 1))),
        bn3_(register_module("bn3", nn::BatchNorm2d(shape.out))),
        relu_(register_module("relu", relu_in_place())),
        downsample_(make_downsample(shape)) {
    if (downsample_) register_module("downsample", downsample_);
  }

  torch::Tensor forward(const torch::Tensor& input) {
    torch::Tensor x = relu_(bn1_(conv1_(input)));
    x = relu_(bn2_(conv2_(x)));
    x = bn3_(conv3_(x));
    x += downsample_ ? downsample_->forward(input) : input;
    return relu_(x);
  }

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d bn2_;
  nn::Conv2d conv3_;
  nn::BatchNorm2d bn3_;
  nn::ReLU relu_;
  nn::Sequential downsample_;
};

}  // namespace

ResNetShape resnet18_shape() {
  return {.block = ResNetShape::Block::kBasic, .stages = {{64, 2}, {128, 2}, {256, 2}, {512, 2}}};
}

ResNetShape resnet50_shape() { return {.stages = {{64, 3}, {128, 4}, {256, 6}, {512, 3}}}; }

ResNetShape resnet152_shape() { return {.stages = {{64, 3}, {128, 8}, {256, 36}, {512, 3}}}; }

ResNet::ResNet(const ResNetShape& shape, const ModelOptions& options) {
  const bool bottleneck = shape.block == ResNetShape::Block::kBottleneck;
  const bool large_images = shape.stem == ResNetShape::Stem::kLargeImages;

  std::int64_t in = shape.stages.front().channels;  // before the width
  const std::int64_t stem = scaled(in, options.width);
  conv1_ = register_module("conv1", large_images ? conv2d(options.channels, stem, 7, 2, 3)
                                                 : conv2d(options.channels, stem, 3, 1, 1));
  bn1_ = register_module("bn1", nn::BatchNorm2d(stem));
  relu_ = register_module("relu", relu_in_place());
  if (large_images) {
    maxpool_ =
        register_module("maxpool", nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
  }

  for (const ResNetShape::Stage& stage : shape.stages) {
    const std::int64_t out = stage.channels * (bottleneck ? kExpansion : 1);
    const std::size_t index = stages_.size();
    nn::Sequential blocks;
    for (int b = 0; b < stage.blocks; ++b) {
      const std::int64_t stride = index > 0 && b == 0 ? 2 : 1;
      // The width decides nothing here: rounding may make channels equal that are not.
      const bool downsample = stride != 1 || in != out;
      const BlockShape block{scaled(in, options.width), scaled(stage.channels, options.width),
                             scaled(out, options.width), stride, downsample};
      if (bottleneck) {
        blocks->push_back(std::make_shared<Bottleneck>(block));
      } else {
        blocks->push_back(std::make_shared<BasicBlock>(block));
      }
      in = out;
    }
    stages_.push_back(register_module("layer" + std::to_string(index + 1), blocks));
  }

  avgpool_ = register_module("avgpool", nn::AdaptiveAvgPool2d(1));
  fc_ = register_module("fc", nn::Linear(scaled(in, options.width), options.classes));
  init_convolutions(*this, torch::kFanOut);
}

torch::Tensor ResNet::forward(torch::Tensor images) {
  torch::Tensor x = relu_(bn1_(conv1_(images)));
  if (maxpool_) x = maxpool_(x);
  for (nn::Sequential& stage : stages_) x = stage->forward(x);
  return fc_(avgpool_(x).flatten(1));
}

}  // namespace spdkfac::models
