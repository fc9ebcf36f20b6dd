// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/models/densenet.h"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace spdkfac::models {

namespace nn = torch::nn;

namespace {

constexpr std::int64_t kStemChannels = 64;
constexpr std::int64_t kGrowthRate = 32;
constexpr std::int64_t kBottleneck = 4;  // channels between the two convolutions, in growth rates
constexpr std::array<int, 4> kBlocks = {6, 12, 48, 32};

class DenseLayer : public nn::Module {
 public:
  DenseLayer(std::int64_t in, std::int64_t growth)
      : norm1_(register_module("norm1", nn::BatchNorm2d(in))),
        relu1_(register_module("relu1", relu_in_place())),
        conv1_(register_module("conv1", conv2d(in, kBottleneck * growth, 1))),
        norm2_(register_module("norm2", nn::BatchNorm2d(kBottleneck * growth))),
        relu2_(register_module("relu2", relu_in_place())),
        conv2_(register_module("conv2", conv2d(kBottleneck * growth, growth, 3, 1, 1))) {}

  torch::Tensor forward(const torch::Tensor& input) {
    return conv2_(relu2_(norm2_(conv1_(relu1_(norm1_(input))))));
  }

 private:
  nn::BatchNorm2d norm1_;
  nn::ReLU relu1_;
  nn::Conv2d conv1_;
  nn::BatchNorm2d norm2_;
  nn::ReLU relu2_;
  nn::Conv2d conv2_;
};

// Every layer reads what came in and what all layers before it put out.
class DenseBlock : public nn::Module {
 public:
  DenseBlock(int layers, std::int64_t in, std::int64_t growth) {
    for (int l = 0; l < layers; ++l) {
      layers_.push_back(register_module("denselayer" + std::to_string(l + 1),
                                        std::make_shared<DenseLayer>(in + l * growth, growth)));
    }
  }

  torch::Tensor forward(const torch::Tensor& input) {
    std::vector<torch::Tensor> features = {input};
    for (const auto& layer : layers_) features.push_back(layer->forward(torch::cat(features, 1)));
    return torch::cat(features, 1);
  }

 private:
  std::vector<std::shared_ptr<DenseLayer>> layers_;
};

Chain make_transition(std::int64_t in, std::int64_t out) {
  Chain transition;
  transition->push_back("norm", nn::BatchNorm2d(in));
  transition->push_back("relu", relu_in_place());
  transition->push_back("conv", conv2d(in, out, 1));
  transition->push_back("pool", nn::AvgPool2d(nn::AvgPool2dOptions(2).stride(2)));
  return transition;
}

}  // namespace

DenseNet201::DenseNet201(const ModelOptions& options) {
  const std::int64_t growth = scaled(kGrowthRate, options.width);
  std::int64_t channels = scaled(kStemChannels, options.width);
  register_module("features", features_);
  features_->push_back("conv0", conv2d(options.channels, channels, 7, 2, 3));
  features_->push_back("norm0", nn::BatchNorm2d(channels));
  features_->push_back("relu0", relu_in_place());
  features_->push_back("pool0", nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
  for (std::size_t b = 0; b < kBlocks.size(); ++b) {
    const std::string number = std::to_string(b + 1);
    features_->push_back("denseblock" + number,
                         std::make_shared<DenseBlock>(kBlocks[b], channels, growth));
    channels += kBlocks[b] * growth;
    if (b + 1 == kBlocks.size()) break;
    features_->push_back("transition" + number, make_transition(channels, channels / 2));
    channels /= 2;
  }
  features_->push_back("norm5", nn::BatchNorm2d(channels));
  classifier_ = register_module("classifier", nn::Linear(channels, options.classes));
  init_convolutions(*this, torch::kFanIn);
  nn::init::zeros_(classifier_->bias);
}

torch::Tensor DenseNet201::forward(torch::Tensor images) {
  torch::Tensor x = features_->forward(images);
  return classifier_(global_average(torch::relu_(x)));
}

}  // namespace spdkfac::models
