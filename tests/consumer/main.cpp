// SPDX-License-Identifier: Apache-2.0
// Fits a sine with a small network, K-FAC and the installed library.
#include <cstdio>

#include <spdkfac/spdkfac.h>
#include <torch/torch.h>

int main() {
  std::printf("spdkfac %s\n", spdkfac::version());
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(1, 32), torch::nn::Tanh(),
                              torch::nn::Linear(32, 1));
  const double rate = 0.1;
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(rate).momentum(0.9));
  spdkfac::Preconditioner kfac(*model, {.damping = 0.003});

  for (int step = 0; step <= 100; ++step) {
    const torch::Tensor x = 6 * torch::rand({256, 1}) - 3;
    const torch::Tensor loss = torch::mse_loss(model->forward(x), torch::sin(x));
    if (step % 25 == 0) std::printf("step %d: loss %.4f\n", step, loss.item<double>());
    optimizer.zero_grad();
    loss.backward();
    kfac.step(rate);
    optimizer.step();
  }
}
