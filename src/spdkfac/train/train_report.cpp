// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/train/train_report.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spdkfac/plan/plan_options.h"
#include "spdkfac/runtime/counters_json.h"

namespace spdkfac::train {
namespace {

double per(double amount, double by) { return by > 0 ? amount / by : 0; }

void add_evaluation(Json& json, const TrainStatus& status) {
  json["test_loss"] = status.evaluation ? Json(status.evaluation->loss) : Json();
  json["test_accuracy"] = status.evaluation ? Json(status.evaluation->accuracy) : Json();
}

}  // namespace

double TrainStatus::epochs() const {
  const auto steps = static_cast<double>(steps_per_epoch);
  const auto batch = static_cast<double>(options.batch * world);
  return (static_cast<double>(position.epoch) * steps +
          static_cast<double>(position.examples) / batch) /
         steps;
}

double TrainStatus::train_loss() const {
  return per(position.loss_sum, static_cast<double>(position.examples));
}

double TrainStatus::images_per_second() const {
  return per(static_cast<double>(position.examples), position.epoch_seconds);
}

TrainRow row_of(const TrainStatus& status) {
  return {.epochs = status.epochs(),
          .step = status.position.step,
          .train_loss = status.train_loss(),
          .test_loss = status.evaluation ? status.evaluation->loss : 0,
          .test_accuracy = status.evaluation ? status.evaluation->accuracy : 0,
          .seconds = status.position.seconds,
          .images_per_second = status.images_per_second()};
}

Json epoch_json(const TrainStatus& status) {
  const TrainPosition& position = status.position;
  Json json = {{"kind", "epoch"},
               {"epoch", position.epoch + 1},
               {"steps", position.epoch_steps},
               {"train_loss", status.train_loss()}};
  add_evaluation(json, status);
  json["seconds"] = position.epoch_seconds;
  json["algorithm"] = status.options.algorithm;
  json["world"] = status.world;
  json["step"] = position.step;
  json["total_seconds"] = position.seconds;
  json["examples_per_second"] = status.images_per_second();
  json["learning_rate"] = status.learning_rate;
  if (status.counters) json["kfac"] = runtime::counters_json(*status.counters);
  return json;
}

Json eval_json(const TrainStatus& status) {
  Json json = {{"kind", "eval"},
               {"step", status.position.step},
               {"epochs", status.epochs()},
               {"train_loss", status.train_loss()}};
  add_evaluation(json, status);
  json["seconds"] = status.position.seconds;
  json["algorithm"] = status.options.algorithm;
  json["world"] = status.world;
  json["learning_rate"] = status.learning_rate;
  return json;
}

Json summary_json(const TrainStatus& status, const Training& training,
                  const std::string& ended_by) {
  const TrainOptions& options = status.options;
  Json json = {{"format", "spdkfac.training/1"},
               {"model", options.model},
               {"parameters", training.parameters()},
               {"data", options.data},
               {"algorithm", options.algorithm},
               {"optimizer", name_of(optimizer_names(), options.optimizer)},
               {"world", status.world},
               {"batch", options.batch},
               {"seed", options.seed},
               {"device", training.device.str()},
               {"ended_by", ended_by},
               {"step", status.position.step},
               {"epochs", status.epochs()}};
  add_evaluation(json, status);
  json["seconds"] = status.position.seconds;
  json["examples_per_second"] =
      per(static_cast<double>(status.position.step * options.batch * status.world),
          status.position.seconds);
  json["parameters_sha256"] = training.digest();
  if (options.second_order()) json["covered_layers"] = training.kfac->layers().size();
  if (status.counters) json["kfac"] = runtime::counters_json(*status.counters);
  return json;
}

std::string header_text(const TrainOptions& options, const Training& training,
                        std::int64_t total_steps) {
  std::string coverage;
  if (options.second_order()) {
    const double share = 100 * per(static_cast<double>(training.covered_parameters()),
                                   static_cast<double>(training.parameters()));
    coverage = fmt::format(", {:.1f} % of them in {} layers with K-FAC", share,
                           training.kfac->layers().size());
  }
  const std::string device = training.device.is_cpu()
                                 ? fmt::format("cpu with {} thread{}", at::get_num_threads(),
                                               at::get_num_threads() == 1 ? "" : "s")
                                 : training.device.str();
  const int ranks = training.ranks->size();
  const std::string batch = ranks == 1
                                ? fmt::format("{}", options.batch)
                                : fmt::format("{}, on each of {} ranks", options.batch, ranks);
  const std::string& optimizer = name_of(optimizer_names(), options.optimizer);
  return fmt::format(
      "{}, {} parameters{}; {}, {} + {} images of {}\n{}, batch {}, {} steps ({} per epoch), on {}",
      options.model, training.parameters(), coverage, training.train.name, training.train.size,
      training.test.size, training.train.shape.text(),
      options.second_order() ? options.algorithm + " over " + optimizer : optimizer, batch,
      total_steps, training.train.size / (options.batch * ranks), device);
}

std::string trouble_text(const KfacCounters& counters) {
  std::vector<std::string> parts;
  const auto add = [&](std::int64_t count, const char* what) {
    if (count > 0) parts.push_back(fmt::format("{} {}", count, what));
  };
  add(counters.nonfinite_factors, "factors with NaN or Inf left out");
  add(counters.inverse_retries, "inversions with more damping");
  add(counters.inverses_kept, "refreshes that kept the previous inverse");
  add(counters.nonfinite_gradients, "steps left out because of NaN or Inf in gradients");
  add(counters.layers_without_factors, "gradients without a captured call of their layer");
  add(counters.layers_scaled, "gradients scaled for lack of inverses");
  if (parts.empty()) return "";
  return fmt::format("K-FAC: {}; see docs/errors.md", fmt::join(parts, ", "));
}

}  // namespace spdkfac::train
