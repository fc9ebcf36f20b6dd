// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "spdkfac/base/log.h"
#include "spdkfac/runtime/preconditioner.h"
#include "support/device.h"

namespace spdkfac::support {

// A logger whose lines a test can read.
class CapturedLog {
 public:
  explicit CapturedLog(const std::string& level = "warning")
      : lines_(std::make_shared<std::vector<std::string>>()),
        logger_(make_logger(
            {.level = level, .sink = [lines = lines_](LogLevel, const std::string& message) {
               lines->push_back(message);
             }})) {}
  std::shared_ptr<Logger> logger() const { return logger_; }
  const std::vector<std::string>& lines() const { return *lines_; }

 private:
  std::shared_ptr<std::vector<std::string>> lines_;
  std::shared_ptr<Logger> logger_;
};

// Convolution, batch normalisation, two Linear layers: one of each that matters.
struct TinyNetImpl : torch::nn::Module {
  TinyNetImpl() {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 3, 3).padding(1)));
    norm = register_module("norm", torch::nn::BatchNorm2d(3));
    hidden =
        register_module("hidden", torch::nn::Linear(torch::nn::LinearOptions(3, 4).bias(false)));
    out = register_module("out", torch::nn::Linear(4, 3));
    to(test_device(), at::kDouble);
  }
  at::Tensor forward(const at::Tensor& images) {
    const at::Tensor features = torch::relu(norm(conv(images))).mean({2, 3});
    return out(torch::tanh(hidden(features)));
  }
  torch::nn::Conv2d conv = nullptr;
  torch::nn::BatchNorm2d norm = nullptr;
  torch::nn::Linear hidden = nullptr;
  torch::nn::Linear out = nullptr;
};
TORCH_MODULE(TinyNet);

struct Batch {
  at::Tensor images;
  at::Tensor labels;
};
inline Batch random_batch(std::int64_t examples) {
  return {torch::randn({examples, 2, 5, 4}, test_options(at::kDouble)),
          torch::randint(0, 3, {examples}, test_options(at::kLong))};
}

inline at::Tensor loss_of(TinyNet& model, const Batch& batch) {
  return torch::nn::functional::cross_entropy(model(batch.images), batch.labels);
}

inline std::vector<at::Tensor> clones(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) result.push_back(tensor.detach().clone());
  return result;
}

inline std::vector<at::Tensor> gradients(const torch::nn::Module& model) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : model.parameters()) {
    result.push_back(parameter.grad().defined() ? parameter.grad().clone()
                                                : torch::zeros_like(parameter));
  }
  return result;
}

inline bool same_bits(const std::vector<at::Tensor>& left, const std::vector<at::Tensor>& right) {
  if (left.size() != right.size()) return false;
  for (std::size_t index = 0; index < left.size(); ++index) {
    if (!torch::equal(left[index], right[index])) return false;
  }
  return true;
}

}  // namespace spdkfac::support
