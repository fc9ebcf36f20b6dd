// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/train/value_again.h"

#include <vector>

#include <torch/torch.h>

namespace spdkfac::train {

double value_again(const Training& training, const RandomNumbers& first,
                   const std::function<at::Tensor()>& compute) {
  const torch::NoGradGuard no_grad;
  const RandomNumbers now(training.device);
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& buffer : training.model->buffers()) buffers.push_back(buffer.clone());
  first.restore();
  const double value = compute().item<double>();
  now.restore();
  for (std::size_t i = 0; i < buffers.size(); ++i) training.model->buffers()[i].copy_(buffers[i]);
  return value;
}

}  // namespace spdkfac::train
