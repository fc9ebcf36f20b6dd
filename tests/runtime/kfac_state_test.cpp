// SPDX-License-Identifier: Apache-2.0
#include <fstream>

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "runtime/kfac_fixture.h"
#include "spdkfac/base/error.h"
#include "spdkfac/runtime/presets.h"
#include "support/config_error.h"
#include "support/temporary_folder.h"

namespace spdkfac {
namespace {

using namespace support;
namespace nn = torch::nn;

// One Linear layer is called always, another only when asked for, a third never.
struct ConditionalNetImpl : nn::Module {
  ConditionalNetImpl() {
    always = register_module("always", nn::Linear(3, 3));
    sometimes = register_module("sometimes", nn::Linear(3, 3));
    never = register_module("never", nn::Linear(nn::LinearOptions(2, 5).bias(false)));
    grouped = register_module("grouped", nn::Conv2d(nn::Conv2dOptions(4, 6, 3).groups(2)));
    to(test_device(), at::kDouble);
  }
  at::Tensor forward(const at::Tensor& input, bool with) {
    const at::Tensor out = torch::tanh(always(input));
    return with ? sometimes(out) : out;
  }
  nn::Linear always = nullptr;
  nn::Linear sometimes = nullptr;
  nn::Linear never = nullptr;
  nn::Conv2d grouped = nullptr;
};
TORCH_MODULE(ConditionalNet);

ConditionalNet seeded_conditional_net(std::uint64_t seed) {
  torch::manual_seed(seed);
  return {};
}

at::Tensor conditional_loss(ConditionalNet& model, int step, bool with) {
  torch::manual_seed(static_cast<std::uint64_t>(100 + step));
  return model(torch::randn({6, 3}, test_options(at::kDouble)), with).square().mean();
}

void conditional_step(ConditionalNet& model, Preconditioner& kfac, int step, bool with) {
  model->zero_grad();
  conditional_loss(model, step, with).backward();
  kfac.step(0.05);
  const torch::NoGradGuard no_grad;
  for (at::Tensor& parameter : model->parameters()) {
    if (parameter.grad().defined()) parameter.sub_(parameter.grad(), 0.05);
  }
}

bool averaged(const KfacState& state, const std::string& layer) {
  return state.tensors.at(layer + ".averaged").item<std::int64_t>() != 0;
}

template <class Module>
void copy_parameters(const Module& from, Module& to) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < from->parameters().size(); ++i) {
    to->parameters()[i].copy_(from->parameters()[i]);
  }
  for (std::size_t i = 0; i < from->buffers().size(); ++i) {
    to->buffers()[i].copy_(from->buffers()[i]);
  }
}

void expect_goes_on_bit_for_bit(const KfacOptions& options) {
  torch::manual_seed(1);
  std::vector<Batch> batches;
  for (int step = 0; step < 9; ++step) batches.push_back(random_batch(4));
  const auto run = [&](TinyNet& model, Preconditioner& kfac, std::size_t first, std::size_t last) {
    torch::optim::SGD optimizer(model->parameters(), 0.05);
    for (std::size_t step = first; step < last; ++step) {
      optimizer.zero_grad();
      loss_of(model, batches[step]).backward();
      kfac.step(0.05);
      optimizer.step();
    }
  };
  const TemporaryFolder folder;
  for (std::size_t stop = 0; stop <= 8; ++stop) {
    torch::manual_seed(2);
    TinyNet whole;
    Preconditioner whole_kfac(*whole, options);
    run(whole, whole_kfac, 0, stop);
    write_kfac_state(folder / "state", whole_kfac.state().read_all());

    TinyNet resumed;
    Preconditioner resumed_kfac(*resumed, options);
    run(resumed, resumed_kfac, 5, 7);  // has another history
    copy_parameters(whole, resumed);
    resumed_kfac.load(read_kfac_state(folder / "state"));
    run(whole, whole_kfac, stop, batches.size());
    run(resumed, resumed_kfac, stop, batches.size());
    EXPECT_TRUE(same_bits(clones(resumed->parameters()), clones(whole->parameters())))
        << "stopped after " << stop;
    EXPECT_EQ(resumed_kfac.counters().factor_updates, whole_kfac.counters().factor_updates);
  }
}

TEST(KfacState, GoesOnBitForBitAfterLoading) {
  expect_goes_on_bit_for_bit({.factor_interval = 2, .inverse_interval = 3});
}

TEST(KfacState, GoesOnBitForBitWithGraftingAndGrowingIntervals) {
  KfacOptions options = kfac_preset("mlp");
  options.factor_interval = 2;
  options.inverse_interval = 4;
  expect_goes_on_bit_for_bit(options);
}

TEST(KfacState, GoesOnBitForBitWithEigenvectors) {
  for (const Solver solver : {Solver::kEigen, Solver::kEkfac, Solver::kAdam}) {
    SCOPED_TRACE(solver_names()[static_cast<std::size_t>(solver)]);
    KfacOptions options{.factor_interval = 2, .inverse_interval = 4};
    set_solver(options, solver);
    expect_goes_on_bit_for_bit(options);
  }
}

TEST(KfacState, CanBeSavedAtAnyMoment) {
  // Before, within and after the first batch: it is that of a fresh object.
  for (const char* moment : {"new", "forward", "backward", "discarded"}) {
    SCOPED_TRACE(moment);
    ConditionalNet model = seeded_conditional_net(1);
    Preconditioner kfac(*model);
    at::Tensor loss;
    if (std::string(moment) != "new") loss = conditional_loss(model, 0, true);
    if (std::string(moment) == "backward" || std::string(moment) == "discarded") loss.backward();
    if (std::string(moment) == "discarded") kfac.discard();
    const KfacState state = kfac.state().read_all();
    for (const char* layer : {"always", "sometimes", "never", "grouped"}) {
      EXPECT_FALSE(averaged(state, layer)) << layer;
    }
    ConditionalNet other = seeded_conditional_net(1);
    Preconditioner fresh(*other);
    conditional_step(other, fresh, 7, true);  // is forgotten
    fresh.load(state);
    copy_parameters(seeded_conditional_net(1), other);
    ConditionalNet expected = seeded_conditional_net(1);
    Preconditioner untouched(*expected);
    conditional_step(other, fresh, 3, true);
    conditional_step(expected, untouched, 3, true);
    EXPECT_TRUE(same_bits(clones(other->parameters()), clones(expected->parameters())));
  }
}

TEST(KfacState, HoldsLayersThatWereCalledLateOrNever) {
  ConditionalNet whole = seeded_conditional_net(1);
  Preconditioner whole_kfac(*whole);
  for (int step = 0; step < 2; ++step) conditional_step(whole, whole_kfac, step, false);
  conditional_loss(whole, 9, true);  // a pass of the second layer, whose batch does not count
  whole_kfac.discard();
  const KfacState state = whole_kfac.state().read_all();
  EXPECT_TRUE(averaged(state, "always"));
  EXPECT_FALSE(averaged(state, "sometimes"));
  EXPECT_FALSE(averaged(state, "never"));
  // Shapes as if it had been called: 2 groups, triangles of 2·9+1 and of 3 rows.
  EXPECT_EQ(state.tensors.at("grouped.a_average").sizes(), at::IntArrayRef({2, 190}));
  EXPECT_EQ(state.tensors.at("grouped.g_inverse").sizes(), at::IntArrayRef({2, 6}));
  EXPECT_EQ(state.tensors.at("never.a_average").sizes(), at::IntArrayRef({1, 3}));

  ConditionalNet resumed = seeded_conditional_net(5);
  Preconditioner resumed_kfac(*resumed);
  conditional_step(resumed, resumed_kfac, 4, true);
  copy_parameters(whole, resumed);
  resumed_kfac.load(state);
  for (int step = 2; step < 5; ++step) {
    conditional_step(whole, whole_kfac, step, step > 2);
    conditional_step(resumed, resumed_kfac, step, step > 2);
  }
  EXPECT_TRUE(same_bits(clones(resumed->parameters()), clones(whole->parameters())));
}

TEST(KfacState, IsNoPartOfWhatTheNextStepsChange) {
  TinyNet model;
  Preconditioner kfac(*model);
  loss_of(model, random_batch(4)).backward();
  kfac.step(0.1);
  const KfacState state = kfac.state().read_all();
  std::map<std::string, at::Tensor> before;
  for (const auto& [name, tensor] : state.tensors) before[name] = tensor.clone();
  loss_of(model, random_batch(4)).backward();
  kfac.step(0.1);
  for (const auto& [name, tensor] : state.tensors) {
    EXPECT_TRUE(torch::equal(tensor, before[name])) << name;
  }
}

TEST(KfacState, OfAnotherModelOrOtherOptionsIsRefused) {
  TinyNet model;
  Preconditioner kfac(*model);
  loss_of(model, random_batch(4)).backward();
  kfac.step(0.1);
  const KfacState state = kfac.state().read_all();

  TinyNet same;
  Preconditioner other_options(*same, {.damping = 0.5});
  expect_config_error([&] { other_options.load(state); }, "made with other options");
  nn::Linear one_layer(2, 2);
  Preconditioner fewer(*one_layer);
  expect_config_error([&] { fewer.load(state); }, "has no torch::nn::LinearImpl.averaged");
  nn::Sequential renamed(nn::Conv2d(2, 3, 3), nn::Linear(3, 4), nn::Linear(4, 3));
  Preconditioner other_names(*renamed);
  expect_config_error([&] { other_names.load(state); }, "has no 0.averaged");
}

TEST(KfacState, ThatIsWrongSomewhereChangesNothing) {
  torch::manual_seed(3);
  TinyNet model;
  Preconditioner kfac(*model);
  loss_of(model, random_batch(4)).backward();
  kfac.step(0.1);
  const KfacState good = kfac.state().read_all();
  const auto expect_refused = [&](const std::string& message, const auto& damage) {
    KfacState bad = good;
    for (auto& [name, tensor] : bad.tensors) tensor = tensor.clone().add_(1);  // would be noticed
    bad.tensors["conv.averaged"] = good.tensors.at("conv.averaged");
    for (const char* layer : {"conv", "hidden", "out"}) {
      for (const char* flag : {".averaged", ".stale"}) {
        bad.tensors[std::string(layer) + flag] = good.tensors.at(std::string(layer) + flag);
      }
    }
    damage(bad);
    expect_config_error([&] { kfac.load(bad); }, message);
    const KfacState after = kfac.state().read_all();
    EXPECT_EQ(after.counters.steps, good.counters.steps);
    for (const auto& [name, tensor] : good.tensors) {
      EXPECT_TRUE(torch::equal(after.tensors.at(name), tensor)) << message << ": " << name;
    }
  };
  expect_refused("has no out.g_inverse",
                 [](KfacState& bad) { bad.tensors.erase("out.g_inverse"); });
  expect_refused("has extra, which the model has not",
                 [](KfacState& bad) { bad.tensors["extra"] = at::zeros({1}); });
  expect_refused("out.g_average is F64 [1, 3], but F64 [1, 6] here", [](KfacState& bad) {
    bad.tensors["out.g_average"] = bad.tensors["out.g_average"].narrow(1, 0, 3);
  });
  expect_refused("out.g_average is F32 [1, 6]", [](KfacState& bad) {
    bad.tensors["out.g_average"] = bad.tensors["out.g_average"].to(at::kFloat);
  });
  expect_refused("out.stale is 7, neither 0 nor 1",
                 [](KfacState& bad) { bad.tensors["out.stale"] = at::full({}, 7, at::kLong); });
  expect_refused("out.g_average holds a NaN or an infinity", [](KfacState& bad) {
    bad.tensors["out.g_average"][0][1] = std::numeric_limits<double>::quiet_NaN();
  });
  expect_refused("steps is -1", [](KfacState& bad) { bad.counters.steps = -1; });
  expect_refused("is no plain tensor",
                 [](KfacState& bad) { bad.tensors["out.g_average"] = at::Tensor(); });
}

TEST(KfacState, AnEmptyStepOfRateZeroDoesNothing) {
  // torch.distributed.checkpoint makes an optimizer's state with such a step.
  TinyNet model;
  Preconditioner kfac(*model);
  const auto empty_step = [&] {
    for (const at::Tensor& one : model->parameters()) one.mutable_grad() = torch::zeros_like(one);
    kfac.step(0);
  };
  empty_step();
  EXPECT_EQ(kfac.counters().steps, 0);
  model->zero_grad();
  loss_of(model, random_batch(4)).backward();
  kfac.step(0);  // a rate of 0 alone makes no difference
  EXPECT_EQ(kfac.counters().steps, 1);
  const KfacState before = kfac.state().read_all();
  empty_step();
  const KfacState after = kfac.state().read_all();
  EXPECT_EQ(after.counters.steps, 1);
  for (const auto& [name, tensor] : before.tensors) {
    EXPECT_TRUE(torch::equal(after.tensors.at(name), tensor)) << name;
  }
}

TEST(KfacState, AFileOfItHasAChecksumAndAFormat) {
  const TemporaryFolder folder;
  nn::Linear layer(2, 2);
  Preconditioner kfac(*layer);
  write_kfac_state(folder / "state", kfac.state().read_all());
  std::ifstream in(folder / "state", std::ios::binary);
  std::string content((std::istreambuf_iterator<char>(in)), {});
  content.back() = static_cast<char>(content.back() ^ 1);
  folder.write("state", content);
  EXPECT_THROW(read_kfac_state(folder / "state"), DamagedFile);
  TensorFileWriter(folder / "foreign", {{{"format", "other"}}, {}}).finish();
  expect_config_error([&] { read_kfac_state(folder / "foreign"); },
                      "its format is other, not spdkfac.kfac-state/2");
}

}  // namespace
}  // namespace spdkfac
