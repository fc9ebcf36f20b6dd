// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/models/layers.h"

#include <algorithm>
#include <cmath>

namespace spdkfac::models {

namespace nn = torch::nn;

std::int64_t scaled(std::int64_t channels, double width) {
  return std::max<std::int64_t>(1, std::llround(static_cast<double>(channels) * width));
}

nn::Conv2d conv2d(std::int64_t in, std::int64_t out, torch::ExpandingArray<2> kernel,
                  torch::ExpandingArray<2> stride, torch::ExpandingArray<2> padding) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(padding).bias(false));
}

nn::ReLU relu_in_place() { return nn::ReLU(nn::ReLUOptions().inplace(true)); }

void init_convolutions(nn::Module& model, nn::init::FanModeType fan) {
  for (const auto& module : model.modules(/*include_self=*/false)) {
    if (auto* conv = module->as<nn::Conv2d>()) {
      nn::init::kaiming_normal_(conv->weight, 0, fan, torch::kReLU);
    }
  }
}

torch::Tensor global_average(const torch::Tensor& images) {
  return torch::adaptive_avg_pool2d(images, {1, 1}).flatten(1);
}

}  // namespace spdkfac::models
