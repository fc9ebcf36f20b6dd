// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/bench/paper.h"

#include "spdkfac/base/data_files.h"
#include "spdkfac/base/json.h"

namespace spdkfac::bench {
namespace {

const Json& paper() {
  static const Json document = [] {
    const std::filesystem::path file = data_folder() / "paper.json";
    Json read = read_json_file(file);
    JsonObject(JsonValue(read, file.string())).expect_format("spdkfac.paper/1");
    return read;
  }();
  return document;
}

}  // namespace

std::optional<Seconds> paper_iteration(const std::string& cluster, int world,
                                       const std::string& model, const PlanOptions& options) {
  const Json& document = paper();
  const Json& times = document.at("iteration");
  const bool printed = document.at("cluster").get<std::string>() == cluster &&
                       document.at("world").get<int>() == world &&
                       options.algorithm != kAutoAlgorithm && times.contains(model) &&
                       times.at(model).contains(options.algorithm) &&
                       options == preset(options.algorithm);
  if (!printed) return std::nullopt;
  return Seconds(times.at(model).at(options.algorithm).get<double>());
}

std::optional<report::PaperModel> paper_model(const std::string& model) {
  const Json& models = paper().at("models");
  if (!models.contains(model)) return std::nullopt;
  const Json& row = models.at(model);
  return report::PaperModel{.parameters = row.at("parameters").get<double>(),
                            .layers = row.at("layers").get<std::int64_t>(),
                            .batch = row.at("batch").get<std::int64_t>(),
                            .a_elements = row.at("a_elements").get<double>(),
                            .g_elements = row.at("g_elements").get<double>()};
}

}  // namespace spdkfac::bench
