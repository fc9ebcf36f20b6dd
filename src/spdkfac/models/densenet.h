// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn.h>

#include "spdkfac/models/layers.h"
#include "spdkfac/models/model.h"

namespace spdkfac::models {

// DenseNet-201 (Huang et al., arXiv:1608.06993). Names, order of modules and weights as in
// torchvision.
class DenseNet201 : public Model {
 public:
  // All fields of `options` are set.
  explicit DenseNet201(const ModelOptions& options);
  torch::Tensor forward(torch::Tensor images) override;

 private:
  Chain features_;
  torch::nn::Linear classifier_{nullptr};
};

}  // namespace spdkfac::models
