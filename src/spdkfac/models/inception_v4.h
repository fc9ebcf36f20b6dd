// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn.h>

#include "spdkfac/models/layers.h"
#include "spdkfac/models/model.h"

namespace spdkfac::models {

// Inception-v4 (Szegedy et al., arXiv:1602.07261). Names and order of the modules with weights as
// in timm's inception_v4; torch's default weights. Images of at least 75×75.
class InceptionV4 : public Model {
 public:
  // All fields of `options` are set.
  explicit InceptionV4(const ModelOptions& options);
  torch::Tensor forward(torch::Tensor images) override;

 private:
  Chain features_;
  torch::nn::Linear last_linear_{nullptr};
};

}  // namespace spdkfac::models
