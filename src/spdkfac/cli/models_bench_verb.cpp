// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <vector>

#include "spdkfac/base/data_files.h"
#include "spdkfac/bench/paper.h"
#include "spdkfac/cli/bench_output.h"
#include "spdkfac/cli/verbs.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/report/model_figures.h"
#include "spdkfac/report/record.h"

namespace spdkfac::cli {
namespace {

struct ModelsBenchFlags {
  std::vector<std::string> models;
  RecordFlags record;
};

void run_models_bench(const ModelsBenchFlags& flags) {
  std::vector<report::ModelFigures> models;
  for (const std::string& name : flags.models.empty() ? data_names("models") : flags.models) {
    models.push_back(
        report::figures_of(read_model(data_file("models", name)), bench::paper_model(name)));
  }
  report::RecordHead head;
  head.experiment = "models";
  Json record = to_json(head);
  record["models"] = Json::array();
  for (const report::ModelFigures& model : models) record["models"].push_back(to_json(model));
  write_record(record, to_text(models), flags.record);
}

}  // namespace

void add_models_bench(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("models", "Layers and factor sizes, here and in the paper");
  const auto flags = std::make_shared<ModelsBenchFlags>();
  verb->add_option("--model", flags->models, "Bundled model; repeatable; default: all")
      ->type_name("NAME")
      ->expected(1)
      ->take_all();
  flags->record.add_to(*verb);
  verb->callback([flags] { run_models_bench(*flags); });
}

}  // namespace spdkfac::cli
