// SPDX-License-Identifier: Apache-2.0
// Runs one of our models with weights and images from Python, for model_parity_test.py.
//
//   model_parity MODEL INPUT OUTPUT
//
// INPUT is a file of torch.save with a dict of tensors: `state.<name>` for every parameter and
// buffer, `input`, whose precision and device the model takes, `target`, and `classes`. OUTPUT gets
// a dict for torch.load: `modules` (names, in order), `train_output`, `eval_output`, `grad.<name>`
// of the mean cross-entropy, and `buffer.<name>` after the training pass.
//
// With `steps` in INPUT, a tensor of labels [steps, examples], and `input` [steps, examples, …],
// the model takes that many steps of K-FAC over SGD instead, and OUTPUT gets `parameter.<name>`.
// The settings are tensors, too: `lr`, `momentum`, `damping`, `kl_clip`, `inverse_interval`.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include "spdkfac/models/model.h"
#include "spdkfac/runtime/preconditioner.h"

namespace spdkfac {
namespace {

using Tensors = std::map<std::string, torch::Tensor>;
const std::string kStatePrefix = "state.";

Tensors read(const std::string& path) {
  std::vector<char> bytes(std::filesystem::file_size(path));
  std::ifstream(path, std::ios::binary)
      .read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  Tensors tensors;
  for (const auto& entry : torch::pickle_load(bytes).toGenericDict()) {
    tensors.emplace(entry.key().toStringRef(), entry.value().toTensor());
  }
  return tensors;
}

// Every parameter and buffer takes the tensor of its name, and no tensor stays unused. Python may
// leave out num_batches_tracked.
void load_state(models::Model& model, const Tensors& given) {
  torch::NoGradGuard no_grad;
  std::vector<std::string> wrong;
  Tensors unused = given;
  std::erase_if(unused, [](const auto& entry) { return !entry.first.starts_with(kStatePrefix); });
  const auto copy = [&](const std::string& name, torch::Tensor to) {
    const auto from = unused.extract(kStatePrefix + name);
    if (from.empty()) {
      if (!name.ends_with("num_batches_tracked")) wrong.push_back("missing " + name);
    } else if (from.mapped().sizes() != to.sizes()) {
      wrong.push_back(fmt::format("{} is [{}], not [{}]", name, fmt::join(to.sizes(), ", "),
                                  fmt::join(from.mapped().sizes(), ", ")));
    } else {
      to.copy_(from.mapped());
    }
  };
  for (const auto& entry : model.named_parameters()) copy(entry.key(), entry.value());
  for (const auto& entry : model.named_buffers()) copy(entry.key(), entry.value());
  for (const auto& [name, tensor] : unused) {
    if (!name.ends_with("num_batches_tracked")) {
      wrong.push_back("extra " + name.substr(kStatePrefix.size()));
    }
  }
  if (!wrong.empty()) throw std::runtime_error(fmt::format("state: {}", fmt::join(wrong, "; ")));
}

using Output = c10::impl::GenericDict;

void take_steps(models::Model& model, const Tensors& given, Output& output) {
  const auto number = [&](const char* key) { return given.at(key).item<double>(); };
  torch::optim::SGD optimizer(model.parameters(),
                              torch::optim::SGDOptions(number("lr")).momentum(number("momentum")));
  KfacOptions options;
  options.precision = Precision::kFp32;
  options.damping = number("damping");
  options.kl_clip = number("kl_clip");
  options.inverse_interval = given.at("inverse_interval").item<std::int64_t>();
  Preconditioner kfac(model, options);
  const torch::Tensor& labels = given.at("steps");
  for (std::int64_t step = 0; step < labels.size(0); ++step) {
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(model.forward(given.at("input")[step]), labels[step])
        .backward();
    kfac.step(number("lr"));
    optimizer.step();
  }
  for (const auto& entry : model.named_parameters()) {
    output.insert("parameter." + entry.key(), entry.value().detach());
  }
}

void take_passes(models::Model& model, const Tensors& given, Output& output) {
  const torch::Tensor input = given.at("input");
  c10::List<std::string> modules;
  for (const auto& entry : model.named_modules()) modules.push_back(entry.key());
  output.insert("modules", modules);

  // First, since the training pass changes the running statistics.
  {
    torch::NoGradGuard no_grad;
    model.eval();
    output.insert("eval_output", model.forward(input));
  }
  model.train();
  const torch::Tensor logits = model.forward(input);
  torch::nn::functional::cross_entropy(logits, given.at("target")).backward();
  output.insert("train_output", logits.detach());
  for (const auto& entry : model.named_parameters()) {
    output.insert("grad." + entry.key(), entry.value().grad());
  }
  for (const auto& entry : model.named_buffers()) {
    output.insert("buffer." + entry.key(), entry.value());
  }
}

void run(const std::string& name, const std::string& input_path, const std::string& output_path) {
  const Tensors given = read(input_path);
  const torch::Tensor input = given.at("input");
  const auto model =
      models::make_model(name, {.classes = given.at("classes").item<std::int64_t>()});
  // On a GPU no tf32, and sums in one order: rounding would grow in the steps.
  at::globalContext().setAllowTF32CuDNN(false);
  at::globalContext().setDeterministicCuDNN(true);
  model->to(input.device(), input.scalar_type());
  load_state(*model, given);

  Output output(c10::StringType::get(), c10::AnyType::get());
  if (given.contains("steps")) {
    take_steps(*model, given, output);
  } else {
    take_passes(*model, given, output);
  }
  const std::vector<char> bytes = torch::pickle_save(output);
  std::ofstream(output_path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace
}  // namespace spdkfac

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: model_parity MODEL INPUT OUTPUT\n", stderr);
    return 2;
  }
  try {
    spdkfac::run(argv[1], argv[2], argv[3]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "model_parity: %s\n", error.what());
    return 1;
  }
  return 0;
}
