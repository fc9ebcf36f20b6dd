// SPDX-License-Identifier: Apache-2.0
// Two spirals, told apart by a small network: an ordinary training loop, with K-FAC added.
#include <cmath>
#include <cstdio>

#include <spdkfac/spdkfac.h>
#include <torch/torch.h>

namespace {

struct Examples {
  torch::Tensor points;
  torch::Tensor labels;
};

Examples two_spirals(int64_t count) {
  const torch::Tensor labels = torch::randint(0, 2, {count});
  const torch::Tensor turn = torch::rand({count}).sqrt() * 3 * M_PI;
  const torch::Tensor angle = turn + labels * M_PI;
  const torch::Tensor points = torch::stack({angle.cos(), angle.sin()}, 1) * turn.unsqueeze(1);
  return {points / 5 + 0.05 * torch::randn({count, 2}), labels};
}

}  // namespace

int main() {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(2, 32), torch::nn::Tanh(),
                              torch::nn::Linear(32, 32), torch::nn::Tanh(),
                              torch::nn::Linear(32, 2));
  const double rate = 0.03;
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(rate).momentum(0.9));
  spdkfac::Preconditioner kfac(*model, {.damping = 0.003});  // the one line

  for (int step = 1; step <= 300; ++step) {
    const Examples batch = two_spirals(256);
    optimizer.zero_grad();
    const torch::Tensor loss =
        torch::nn::functional::cross_entropy(model->forward(batch.points), batch.labels);
    loss.backward();
    kfac.step(rate);  // gradients become preconditioned gradients
    optimizer.step();
    if (step % 50 == 0) std::printf("step %d: loss %.4f\n", step, loss.item<double>());
  }

  const torch::NoGradGuard no_grad;
  const Examples test = two_spirals(2000);
  const auto right = model->forward(test.points).argmax(1).eq(test.labels).sum().item<int64_t>();
  std::printf("accuracy: %.1f %%\n", 0.05 * static_cast<double>(right));
}
