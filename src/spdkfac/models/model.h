// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>

namespace spdkfac::models {

// A classifier of images: [N, C, H, W] to logits [N, classes].
class Model : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(torch::Tensor images) = 0;
};

struct ModelOptions {
  double width = 1;           // multiplies the channels of every hidden layer
  std::int64_t classes = 0;   // 0: the model's own
  std::int64_t channels = 0;  // of the images; 0: the model's own
};

struct ModelInfo {
  std::string name;
  std::string summary;              // one line for lists
  std::vector<std::int64_t> input;  // [channels, height, width] it is made for
  std::int64_t classes = 0;
  std::int64_t batch = 0;  // the paper's, or a usual one
};

// The models by name, in the order of lists.
const std::vector<ModelInfo>& model_infos();
// An unknown name is a ConfigError that lists the known ones.
const ModelInfo& model_info(const std::string& name);
// With fresh weights from torch's default generator. Bad options are ConfigErrors.
std::shared_ptr<Model> make_model(const std::string& name, const ModelOptions& options = {});

}  // namespace spdkfac::models
