// SPDX-License-Identifier: Apache-2.0
// Loads damaged checkpoints as `spdkfac train --resume` does. What is damaged is set aside,
// anything else that is wrong leaves the file as it is, both with a ConfigError, and nothing is
// half loaded. Usage: checkpoint_fuzz [--seed S] [--seconds N | --cases N]. Case i has the seed S+i
// and is named on stderr before it runs. A finding is printed and ends the run with exit code 1.
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include "fuzz/damaged_checkpoint.h"
#include "spdkfac/base/error.h"
#include "spdkfac/train/optimizer_state.h"
#include "spdkfac/train/train_state.h"
#include "support/temporary_folder.h"

namespace spdkfac::stress {
namespace {

using support::TemporaryFolder;
using Clock = std::chrono::steady_clock;
using Tensors = std::map<std::string, at::Tensor>;

struct FuzzFlags {
  std::uint64_t seed = 1;
  double seconds = 10;
  std::uint64_t cases = 0;  // 0: as many as there is time for
};

train::TrainOptions small_options(train::BaseOptimizer optimizer) {
  train::TrainOptions options;
  options.width = 0.125;
  options.data = "synthetic";
  options.synthetic_examples = 16;
  options.input = {1, 28, 28};
  options.classes = 10;
  options.batch = 4;
  options.epochs = 1;
  options.learning_rate = 0.01;
  options.optimizer = optimizer;
  return options;
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void require(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error(what);
}

// A training with a checkpoint of its first step.
class Resumed {
 public:
  explicit Resumed(train::BaseOptimizer optimizer)
      : options_(small_options(optimizer)),
        settings_(train::settings_of(options_, 1, 4)),
        folder_(temporary_.path(), 9),
        training_(train::make_training(options_,
                                       std::make_unique<train::Ranks>(options_.ranks, at::kCPU),
                                       [](const std::string&) {})) {
    training_.model->train();
    step(1);
    train::save_state(&folder_, training_, {.step = 1, .examples = 4, .epoch_steps = 1}, settings_);
    good_ = bytes_of(file());
  }

  const std::string& good() const { return good_; }

  // Which of: loaded, refused, set aside. Throws what is a finding.
  std::size_t load(const std::string& bad) {
    const Tensors before = tensors();
    const std::filesystem::path aside = file().string() + ".damaged";
    temporary_.write(file().filename().string(), bad);
    try {
      load();
    } catch (const ConfigError& error) {
      const bool was_set_aside = std::filesystem::exists(aside);
      require(bytes_of(was_set_aside ? aside : file()) == bad, "the file was changed");
      require(was_set_aside != fuzz::is_whole(bad),
              fmt::format("{} was set aside: {}",
                          was_set_aside ? "a whole file" : "no damaged file", error.what()));
      require(std::string(error.what()).find(": ") != std::string::npos,
              fmt::format("no place in: {}", error.what()));
      std::filesystem::remove(aside);
      require_same(before, error.what());
      return was_set_aside ? 2 : 1;
    }
    require(fuzz::is_whole(bad), "a damaged file was loaded");
    step(5);  // what was accepted can be used
    temporary_.write(file().filename().string(), good_);
    load();
    return 0;
  }

 private:
  std::filesystem::path file() const { return folder_.file_of(1); }
  void load() {
    train::load_newest(&folder_, training_, settings_, [](const std::string&) {});
  }

  void step(std::uint64_t seed) {
    torch::manual_seed(seed);
    training_.optimizer->zero_grad();
    at::cross_entropy_loss(training_.model->forward(torch::randn({4, 1, 28, 28})),
                           torch::randint(10, {4}, at::kLong))
        .backward();
    training_.kfac->step(0.01);
    training_.optimizer->step();
  }

  // Everything that a later step depends on.
  Tensors tensors() {
    Tensors all = training_.kfac->state().read_all().tensors;
    for (const auto& [name, tensor] : train::model_tensors(training_)) {
      all["model." + name] = tensor.clone();
    }
    for (const auto& [name, tensor] :
         train::optimizer_tensors(training_.optimizers(), train::model_parameters(training_))) {
      all["optimizer." + name] = tensor.clone();
    }
    all["random"] = at::globalContext().defaultGenerator(at::kCPU).get_state();
    return all;
  }

  void require_same(const Tensors& before, const std::string& message) {
    const Tensors now = tensors();
    require(now.size() == before.size(), "half loaded: " + message);
    for (const auto& [name, tensor] : before) {
      const auto found = now.find(name);
      require(found != now.end() && torch::equal(found->second, tensor),
              fmt::format("half loaded ({}): {}", name, message));
    }
  }

  TemporaryFolder temporary_;
  train::TrainOptions options_;
  train::Settings settings_;
  train::CheckpointFolder folder_;
  train::Training training_;
  std::string good_;
};

int run(const FuzzFlags& flags) {
  at::set_num_threads(1);
  Resumed sgd(train::BaseOptimizer::kSgd);
  Resumed adam(train::BaseOptimizer::kAdam);
  std::array<std::int64_t, 3> counts{};
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(flags.seconds));
  const auto more = [&](std::uint64_t cases) {
    return flags.cases > 0 ? cases < flags.cases : Clock::now() < end;
  };
  std::uint64_t cases = 0;
  for (; more(cases); ++cases) {
    const std::uint64_t seed = flags.seed + cases;
    fuzz::Random random(seed);
    fmt::print(stderr, "checkpoint_fuzz: seed {}\n", seed);
    const bool swapped = random.one_in(2);
    Resumed& one = swapped ? adam : sgd;
    const Resumed& other = swapped ? sgd : adam;
    try {
      ++counts[one.load(fuzz::damaged_checkpoint(one.good(), other.good(), random))];
    } catch (const std::exception& error) {
      fmt::print("finding: states seed {}: {}\n", seed, error.what());
      return 1;
    }
  }
  fmt::print(
      "checkpoints: {} cases from seed {}; {} checkpoints set aside, {} refused, {} loaded\n",
      cases, flags.seed, counts[2], counts[1], counts[0]);
  return 0;
}

}  // namespace
}  // namespace spdkfac::stress

int main(int argc, char** argv) {
  spdkfac::stress::FuzzFlags flags;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (flag == "--seed" && !value.empty()) {
      flags.seed = std::strtoull(value.c_str(), nullptr, 10);
    } else if (flag == "--seconds" && !value.empty()) {
      flags.seconds = std::atof(value.c_str());
    } else if (flag == "--cases" && !value.empty()) {
      flags.cases = std::strtoull(value.c_str(), nullptr, 10);
    } else {
      fmt::print(stderr,
                 "checkpoint_fuzz: flags: {} {} is unknown; use --seed S, --seconds N, --cases N\n",
                 flag, value);
      return 2;
    }
  }
  return spdkfac::stress::run(flags);
}
