// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include <torch/nn.h>

namespace spdkfac::models {

// channels · width, rounded, at least 1.
std::int64_t scaled(std::int64_t channels, double width);

// Without bias: in our models a batch normalisation stands before or after.
torch::nn::Conv2d conv2d(std::int64_t in, std::int64_t out, torch::ExpandingArray<2> kernel,
                         torch::ExpandingArray<2> stride = 1, torch::ExpandingArray<2> padding = 0);

torch::nn::ReLU relu_in_place();

// Normal weights for the convolutions below `model`, of the variance that keeps the forward (fan
// in) or the backward (fan out) signal through ReLUs (He et al., arXiv:1502.01852).
void init_convolutions(torch::nn::Module& model, torch::nn::init::FanModeType fan);

// [N, C, H, W] to the means [N, C].
torch::Tensor global_average(const torch::Tensor& images);

// A Sequential whose forward is no template, so that it can stand in another one.
class ChainImpl : public torch::nn::SequentialImpl {
 public:
  using SequentialImpl::SequentialImpl;
  torch::Tensor forward(const torch::Tensor& input) { return SequentialImpl::forward(input); }
};
TORCH_MODULE(Chain);

}  // namespace spdkfac::models
