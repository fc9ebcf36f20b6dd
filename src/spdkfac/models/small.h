// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn.h>

#include "spdkfac/models/model.h"
#include "spdkfac/models/resnet.h"

namespace spdkfac::models {

// The demo for grey images of 28×28: two 3×3 convolutions, each with ReLU and 2×2 max-pool, then
// two linear layers; all with bias and with torch's default weights.
class Cnn28 : public Model {
 public:
  // All fields of `options` are set.
  explicit Cnn28(const ModelOptions& options);
  // Images of another size are a ConfigError.
  torch::Tensor forward(torch::Tensor images) override;

 private:
  torch::nn::Conv2d conv1_;
  torch::nn::Conv2d conv2_;
  torch::nn::Linear fc1_;
  torch::nn::Linear fc2_;
};

// ResNet-20 of He et al. (arXiv:1512.03385, section 4.2) for images of about 32×32, with 1×1
// convolutions where shapes change (their option B).
ResNetShape resnet20_shape();

}  // namespace spdkfac::models
