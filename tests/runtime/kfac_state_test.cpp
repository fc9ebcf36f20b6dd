// SPDX-License-Identifier: Apache-2.0
#include <sstream>

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "runtime/kfac_fixture.h"
#include "support/config_error.h"

namespace spdkfac {
namespace {

using namespace support;
namespace nn = torch::nn;

std::string saved(Preconditioner& kfac) {
  torch::serialize::OutputArchive archive;
  kfac.save(archive);
  std::ostringstream out;
  archive.save_to(out);
  return out.str();
}

void load(Preconditioner& kfac, const std::string& state) {
  torch::serialize::InputArchive archive;
  std::istringstream in(state);
  archive.load_from(in);
  kfac.load(archive);
}

TEST(KfacState, GoesOnBitForBitAfterLoading) {
  torch::manual_seed(1);
  std::vector<Batch> batches;
  for (int step = 0; step < 9; ++step) batches.push_back(random_batch(4));
  const KfacOptions options{.factor_interval = 2, .inverse_interval = 3};
  const auto run = [&](TinyNet& model, Preconditioner& kfac, std::size_t first, std::size_t last) {
    torch::optim::SGD optimizer(model->parameters(), 0.05);
    for (std::size_t step = first; step < last; ++step) {
      optimizer.zero_grad();
      loss_of(model, batches[step]).backward();
      kfac.step(0.05);
      optimizer.step();
    }
  };
  for (std::size_t stop = 0; stop <= 8; ++stop) {
    torch::manual_seed(2);
    TinyNet whole;
    Preconditioner whole_kfac(*whole, options);
    run(whole, whole_kfac, 0, stop);
    const std::string state = saved(whole_kfac);

    TinyNet resumed;
    {
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < whole->parameters().size(); ++i) {
        resumed->parameters()[i].copy_(whole->parameters()[i]);
      }
      for (std::size_t i = 0; i < whole->buffers().size(); ++i) {
        resumed->buffers()[i].copy_(whole->buffers()[i]);
      }
    }
    Preconditioner resumed_kfac(*resumed, options);
    load(resumed_kfac, state);
    run(whole, whole_kfac, stop, batches.size());
    run(resumed, resumed_kfac, stop, batches.size());
    EXPECT_TRUE(same_bits(clones(resumed->parameters()), clones(whole->parameters())))
        << "stopped after " << stop;
    EXPECT_EQ(resumed_kfac.counters().factor_updates, whole_kfac.counters().factor_updates);
  }
}

TEST(KfacState, OfAnotherModelOrOtherOptionsIsRefused) {
  TinyNet model;
  Preconditioner kfac(*model, {});
  loss_of(model, random_batch(4)).backward();
  kfac.step(0.1);
  const std::string state = saved(kfac);

  TinyNet same;
  Preconditioner other_options(*same, {.damping = 0.5});
  expect_config_error([&] { load(other_options, state); }, "made with other options");
  nn::Linear one_layer(2, 2);
  Preconditioner fewer(*one_layer);
  expect_config_error([&] { load(fewer, state); }, "has 3 layers, but the model has 1");
  nn::Sequential renamed(nn::Conv2d(2, 3, 3), nn::Linear(3, 4), nn::Linear(4, 3));
  Preconditioner other_names(*renamed);
  expect_config_error([&] { load(other_names, state); }, "layer 0 is conv, but 0 in the model");

  torch::serialize::OutputArchive archive;
  archive.write("something", torch::zeros({1}));
  std::ostringstream out;
  archive.save_to(out);
  expect_config_error([&] { load(kfac, out.str()); }, "expected format spdkfac.kfac-state/1");
}

}  // namespace
}  // namespace spdkfac
