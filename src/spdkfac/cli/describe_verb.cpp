// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spdkfac/base/error.h"
#include "spdkfac/cli/flags.h"
#include "spdkfac/cli/output.h"
#include "spdkfac/cli/verbs.h"
#include "spdkfac/models/model.h"
#include "spdkfac/plan/model_file.h"
#include "spdkfac/report/layer_table.h"
#include "spdkfac/runtime/describe.h"

namespace spdkfac::cli {
namespace {

struct Flags {
  std::string model;
  std::optional<std::int64_t> batch;
  std::optional<std::string> input;
  models::ModelOptions options;
  std::string out;
  bool json = false;
};

ModelSpec describe_model(const Flags& flags) {
  const models::ModelInfo& info = models::model_info(flags.model);
  const auto input = flags.input ? parse_shape("--input", *flags.input) : info.input;
  models::ModelOptions options = flags.options;
  options.channels = input[0];
  const std::shared_ptr<models::Model> model = models::make_model(flags.model, options);
  try {
    return describe(
        flags.model, *model, [&](at::Tensor images) { return model->forward(std::move(images)); },
        flags.batch.value_or(info.batch), input);
  } catch (const c10::Error& error) {
    throw ConfigError(fmt::format("describe: {} does not accept images of {} ({}); try {}",
                                  flags.model, fmt::join(input, "x"),
                                  error.what_without_backtrace(), fmt::join(info.input, "x")));
  }
}

void run(const Flags& flags) {
  const ModelSpec model = describe_model(flags);
  if (!flags.out.empty()) write_file_atomically(flags.out, to_json(model).dump(1) + "\n");
  if (flags.json) {
    print_json(to_json(model));
  } else if (flags.out.empty()) {
    print(report::layer_table(model));
  } else {
    print(fmt::format("{}: {} layers, {} parameters\n", flags.out, model.layers.size(),
                      model.parameters));
  }
}

}  // namespace

void add_describe_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("describe", kDescribeHelp);
  const auto flags = std::make_shared<Flags>();
  std::vector<std::string> names;
  for (const models::ModelInfo& info : models::model_infos()) names.push_back(info.name);
  verb->add_option("--model", flags->model, fmt::format("One of {}", fmt::join(names, ", ")))
      ->type_name("NAME")
      ->required();
  verb->add_option("--batch", flags->batch, "Examples per batch, for the table")
      ->type_name("N")
      ->check(count(1, 1'000'000));
  verb->add_option("--input", flags->input, "Channels x height x width, such as 3x224x224")
      ->type_name("CxHxW");
  verb->add_option("--width", flags->options.width, "Factor for the channels of hidden layers")
      ->type_name("X");
  verb->add_option("--classes", flags->options.classes, "Number of classes (default: the model's)")
      ->type_name("N");
  verb->add_option("--out", flags->out, "Write the table to this file, as a model file")
      ->type_name("FILE");
  verb->add_flag("--json", flags->json, "Print the table as JSON");
  verb->callback([flags] { run(*flags); });
}

}  // namespace spdkfac::cli
