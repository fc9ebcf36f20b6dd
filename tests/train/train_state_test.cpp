// SPDX-License-Identifier: Apache-2.0
// Checkpoints of the program, whole and damaged.
#include "spdkfac/train/train_state.h"

#include <array>
#include <cstring>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "fuzz/damage.h"
#include "spdkfac/base/error.h"
#include "spdkfac/base/tensor_file.h"
#include "support/config_error.h"
#include "support/sealed_file.h"
#include "support/temporary_folder.h"

namespace spdkfac::train {
namespace {

using support::TemporaryFolder;

constexpr int kDamagedCheckpoints = 120;

TrainOptions tiny_options() {
  TrainOptions options;
  options.width = 0.125;
  options.data = "synthetic";
  options.synthetic_examples = 16;
  options.input = {1, 28, 28};
  options.classes = 10;
  options.batch = 4;
  options.epochs = 1;
  options.learning_rate = 0.01;
  return options;
}

Training tiny_training(const TrainOptions& options) {
  Training training = make_training(options, std::make_unique<Ranks>(options.ranks, at::kCPU),
                                    [](const std::string&) {});
  training.model->train();
  return training;
}

void tiny_step(Training& training, std::uint64_t seed) {
  torch::manual_seed(seed);
  training.model->zero_grad();
  at::cross_entropy_loss(training.model->forward(torch::randn({4, 1, 28, 28})),
                         torch::randint(10, {4}, at::kLong))
      .backward();
  training.kfac->step(0.01);
  training.update(0.01);
}

// Everything that a later step depends on.
std::map<std::string, at::Tensor> snapshot(Training& training) {
  const KfacState state = training.kfac->state().read_all();
  std::map<std::string, at::Tensor> all = state.tensors;
  for (const auto& [name, tensor] : model_tensors(training)) all["model." + name] = tensor.clone();
  for (const auto& [name, tensor] :
       optimizer_tensors(training.optimizers(), model_parameters(training))) {
    all["optimizer." + name] = tensor.clone();
  }
  all["random"] = at::globalContext().defaultGenerator(at::kCPU).get_state();
  return all;
}

void expect_same(const std::map<std::string, at::Tensor>& left,
                 const std::map<std::string, at::Tensor>& right, const std::string& what) {
  ASSERT_EQ(left.size(), right.size()) << what;
  for (const auto& [name, tensor] : left) {
    ASSERT_TRUE(torch::equal(tensor, right.at(name))) << what << ": " << name;
  }
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(TrainState, ComesBackAsItWas) {
  const TemporaryFolder temporary;
  const CheckpointFolder folder(temporary.path(), 1);
  for (const BaseOptimizer optimizer :
       {BaseOptimizer::kSgd, BaseOptimizer::kAdam, BaseOptimizer::kAdamW}) {
    TrainOptions options = tiny_options();
    options.optimizer = optimizer;
    const Settings settings = settings_of(options, 1, 4);
    Training training = tiny_training(options);
    for (std::uint64_t step = 0; step < 2; ++step) tiny_step(training, step);
    const auto expected = snapshot(training);
    save_state(&folder, training, {.step = 2, .examples = 8, .epoch_steps = 2, .loss_sum = 0.1},
               settings);
    Training other = tiny_training(options);
    for (std::uint64_t step = 7; step < 10; ++step) tiny_step(other, step);
    const auto resumed = load_newest(&folder, other, settings, [](const std::string&) {});
    ASSERT_TRUE(resumed);
    EXPECT_EQ(resumed->position.step, 2);
    EXPECT_EQ(resumed->position.examples, 8);
    EXPECT_EQ(resumed->position.loss_sum, 0.1);
    expect_same(snapshot(other), expected, "loaded");
  }
}

TEST(TrainState, IsNoMoreThanTheTensorsTakeInTheirOwnTypes) {
  const TemporaryFolder temporary;
  const CheckpointFolder folder(temporary.path(), 1);
  const TrainOptions options = tiny_options();
  Training training = tiny_training(options);
  tiny_step(training, 1);
  save_state(&folder, training, {.step = 1}, settings_of(options, 1, 4));
  const TensorFileReader reader(folder.file_of(1));
  for (const TensorSpec& spec : reader.header().tensors) {
    const bool small = spec.shape.empty();  // weights of averages
    EXPECT_TRUE(spec.dtype != "F64" || small) << spec.name;
  }
}

TEST(TrainState, ThatIsDamagedIsSetAsideAndAnythingElseIsAnError) {
  const TemporaryFolder temporary;
  const CheckpointFolder folder(temporary.path(), 9);
  const TrainOptions options = tiny_options();
  const Settings settings = settings_of(options, 1, 4);
  Training training = tiny_training(options);
  tiny_step(training, 1);
  save_state(&folder, training, {.step = 1, .examples = 4, .epoch_steps = 1}, settings);
  const auto saved = snapshot(training);
  const std::filesystem::path file = folder.file_of(1);
  const std::string good = content_of(file);
  std::uint64_t length = 0;
  std::memcpy(&length, good.data(), 8);
  const std::string header = good.substr(8, length);
  const std::string elements = good.substr(8 + length);
  std::array<int, 3> counts{};
  for (int i = 0; i < kDamagedCheckpoints; ++i) {
    fuzz::Random random(static_cast<std::uint64_t>(i));
    std::string bad = good;
    if (random.one_in(4)) {  // whatever happens to disks
      if (random.one_in(2)) {
        bad.resize(random.below(good.size()));
      } else {
        bad[random.below(good.size())] ^= static_cast<char>(1 << random.below(8));
      }
    } else if (random.one_in(4)) {  // whatever a wrong program may write
      std::string wrong = elements;
      wrong.replace(random.below(wrong.size() / 4) * 4, 4, 4, '\xff');  // of floats, a NaN
      bad = support::sealed_file(header, wrong);
    } else {
      bad = support::sealed_file(fuzz::damaged(header, header, random), elements);
    }
    tiny_step(training, 100 + static_cast<std::uint64_t>(i));  // so that half of a load would show
    const auto before = snapshot(training);
    temporary.write(file.filename().string(), bad);
    const std::filesystem::path aside = file.string() + ".damaged";
    try {
      load_newest(&folder, training, settings, [](const std::string&) {});
      ++counts[0];
      tiny_step(training, 5);  // what was accepted can be used
      temporary.write(file.filename().string(), good);
      load_newest(&folder, training, settings, [](const std::string&) {});
      ASSERT_NO_FATAL_FAILURE(expect_same(snapshot(training), saved, fmt::format("case {}", i)));
      continue;
    } catch (const ConfigError& error) {
      ++counts[std::filesystem::exists(aside) ? 2 : 1];
      if (!std::filesystem::exists(aside)) {
        EXPECT_EQ(content_of(file), bad) << i;
      } else {
        EXPECT_THAT(error.what(), testing::HasSubstr("none of its 1 checkpoints can be read"));
        EXPECT_EQ(content_of(aside), bad) << i;
      }
    }
    std::filesystem::remove(aside);
    ASSERT_NO_FATAL_FAILURE(expect_same(snapshot(training), before, fmt::format("case {}", i)));
  }
  EXPECT_GT(counts[1], 20);
  EXPECT_GT(counts[2], 20);
}

// Each part in turn, behind those that are right.
TEST(TrainState, IsNotLoadedByHalves) {
  const TemporaryFolder temporary;
  const CheckpointFolder folder(temporary.path(), 9);
  const TrainOptions options = tiny_options();
  const Settings settings = settings_of(options, 1, 4);
  Training training = tiny_training(options);
  tiny_step(training, 1);
  save_state(&folder, training, {.step = 1, .examples = 4, .epoch_steps = 1}, settings);
  const std::filesystem::path file = folder.file_of(1);
  const std::string good = content_of(file);
  std::uint64_t length = 0;
  std::memcpy(&length, good.data(), 8);
  tiny_step(training, 2);
  const auto before = snapshot(training);
  const auto expect_refused = [&](const std::string& header, const std::string& elements,
                                  const std::string& says) {
    temporary.write(file.filename().string(), support::sealed_file(header, elements));
    support::expect_config_error(
        [&] { load_newest(&folder, training, settings, [](const std::string&) {}); }, says);
    expect_same(snapshot(training), before, says);
  };
  const std::string header = good.substr(8, length);
  const std::string elements = good.substr(8 + length);
  const auto offset = [&](const std::string& prefix) {
    const TensorFileReader reader(file);
    std::uint64_t at = 0;
    for (const TensorSpec& spec : reader.header().tensors) {
      if (spec.name.starts_with(prefix)) return at;
      at += tensor_bytes(spec);
    }
    return elements.size();
  };
  std::string other = header;
  const std::size_t digest = other.find("damping=");
  ASSERT_NE(digest, std::string::npos);
  other[digest] = 'D';
  const std::uint64_t average = offset("kfac.conv1.a_average");
  const std::uint64_t random = offset("random.cpu");
  ASSERT_LT(average, elements.size());
  ASSERT_LT(random, elements.size());
  expect_refused(other, elements, "made with other options");
  std::string bad = elements;
  bad.replace(average, 4, "\xff\xff\xff\x7f");  // a NaN
  expect_refused(header, bad, "holds a NaN or an infinity");
  bad = elements;
  bad.replace(random, 512, 512, '\xff');  // the engine's seed and counters
  expect_refused(header, bad, "a state of random numbers is refused");
}

TEST(TrainState, WhoseFilesAllAreDamagedIsAnErrorUntilTheyAreGone) {
  const TemporaryFolder temporary;
  const CheckpointFolder folder(temporary.path(), 9);
  const TrainOptions options = tiny_options();
  const Settings settings = settings_of(options, 1, 4);
  Training training = tiny_training(options);
  const auto load = [&] {
    return load_newest(&folder, training, settings, [](const std::string&) {});
  };
  temporary.write("step-00000001.ckpt", "x");
  temporary.write("step-00000002.ckpt", "");
  support::expect_config_error(load, "none of its 2 checkpoints can be read");
  for (int attempt = 0; attempt < 2; ++attempt) {
    support::expect_config_error(
        load,
        "its only checkpoints are damaged (step-00000002.ckpt.damaged and 1 more); delete them");
  }
  for (const auto& one : folder.damaged()) std::filesystem::remove(one);
  EXPECT_FALSE(load().has_value());
}

}  // namespace
}  // namespace spdkfac::train
