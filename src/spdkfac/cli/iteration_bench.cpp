// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/cli/iteration_bench.h"

#include <chrono>
#include <cmath>
#include <memory>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include "spdkfac/base/error.h"
#include "spdkfac/base/log.h"
#include "spdkfac/cli/device.h"
#include "spdkfac/cli/output.h"
#include "spdkfac/cli/ranks.h"
#include "spdkfac/cli/train_planner.h"
#include "spdkfac/models/model.h"
#include "spdkfac/report/breakdown.h"
#include "spdkfac/report/prediction.h"
#include "spdkfac/report/statistics.h"
#include "spdkfac/report/table.h"
#include "spdkfac/runtime/preconditioner.h"
#include "spdkfac/sim/auto_planner.h"
#include "spdkfac/sim/simulator.h"

namespace spdkfac::cli {
namespace {

constexpr double kLearningRate = 1e-4;
constexpr double kMilliseconds = 1e3;

using Clock = std::chrono::steady_clock;

// One algorithm with its own copy of the model.
class Contestant {
 public:
  Contestant(const std::string& algorithm, const IterationBenchOptions& options, const Ranks& ranks,
             at::Device device, const CostModel& costs)
      : plan_options_(preset(algorithm)), device_(device) {
    torch::manual_seed(1);
    ModelOptions model;
    model.width = options.width;
    model.channels = options.input[0];
    model_ = make_model(options.model, model);
    model_->to(device);
    Distribution distribution;
    distribution.communicator = ranks.communicator();
    distribution.second_order = plan_options_.second_order();
    distribution.model_name = options.model;
    distribution.profile_steps = options.ranks.profile_steps;
    distribution.planner = [costs, world = ranks.size(), plan = plan_options_](
                               const ModelSpec& spec, StepKind step) {
      return make_best_plan(spec, costs, world, plan, step);
    };
    KfacOptions kfac;
    kfac.trace = true;
    kfac_ = std::make_unique<Preconditioner>(*model_, kfac, distribution,
                                             make_logger({.level = "warning"}));
    optimizer_ = std::make_unique<torch::optim::SGD>(
        model_->parameters(), torch::optim::SGDOptions(kLearningRate).momentum(0.9));
  }

  double step(const at::Tensor& images, const at::Tensor& labels, Communicator& communicator) {
    synchronize(device_);
    communicator.barrier("start of a step");
    const Clock::time_point start = Clock::now();
    kfac_->start_trace();
    optimizer_->zero_grad();
    torch::nn::functional::cross_entropy(model_->forward(images), labels).backward();
    kfac_->step(kLearningRate);
    optimizer_->step();
    synchronize(device_);
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  Preconditioner& kfac() { return *kfac_; }

 private:
  PlanOptions plan_options_;
  at::Device device_;
  std::shared_ptr<Model> model_;
  std::unique_ptr<Preconditioner> kfac_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

// Of each step the slowest rank's time.
std::vector<double> slowest(const Ranks& ranks, const std::vector<double>& mine) {
  const std::size_t steps = mine.size();
  std::vector<double> all(steps * static_cast<std::size_t>(ranks.size()), 0);
  std::copy(
      mine.begin(), mine.end(),
      all.begin() + static_cast<std::ptrdiff_t>(steps * static_cast<std::size_t>(ranks.rank())));
  all = ranks.sum(all);
  std::vector<double> result(steps, 0);
  for (std::size_t i = 0; i < all.size(); ++i) {
    result[i % steps] = std::max(result[i % steps], all[i]);
  }
  return result;
}

double factor_messages(const Trace& trace) {
  double seconds = 0;
  for (const TraceEvent& event : trace.events()) {
    const bool message = event.lane == Lane::kChannel && event.category == Category::kFactorComm;
    if (message) seconds += event.duration.value();
  }
  return seconds;
}

CategoryTimes medians(const std::vector<CategoryTimes>& samples) {
  CategoryTimes result;
  for (const Category category : kCategories) {
    std::vector<double> values;
    for (const CategoryTimes& sample : samples) values.push_back(sample[category].value());
    result[category] = Seconds(quantile(values, 0.5));
  }
  return result;
}

// Share of the time of factor messages that was not waited for.
std::string hidden_text(const IterationSamples& samples) {
  if (samples.factor_messages <= 0) return "";
  const double exposed = samples.measured_parts[Category::kFactorComm].value();
  return fmt::format("{:.0f}", 100 * std::max(0.0, 1 - exposed / samples.factor_messages));
}

}  // namespace

IterationBenchResult bench_iteration(const IterationBenchOptions& options) {
  const at::Device device = find_device(options.device);
  const Ranks ranks(options.ranks, device);
  if (ranks.alone()) {
    throw ConfigError(
        "bench iteration: there is one rank; start the program by mpirun -n P, or use bench step");
  }
  if (options.threads > 0) at::set_num_threads(options.threads);
  ranks.require_same("the options", to_json(options, {}).dump());
  IterationBenchResult result;
  result.world = ranks.size();
  result.first_rank = ranks.first();
  const CostModel costs = costs_of_ranks(options.ranks, ranks, device,
                                         [&](const std::string& text) { result.costs = text; });
  torch::manual_seed(1 + static_cast<std::uint64_t>(ranks.rank()));
  std::vector<std::int64_t> shape = {options.batch};
  shape.insert(shape.end(), options.input.begin(), options.input.end());
  const at::TensorOptions tensor = at::TensorOptions().device(device);
  const at::Tensor images = torch::randn(shape, tensor);
  const at::Tensor labels = torch::randint(0, model_info(options.model).classes, {options.batch},
                                           tensor.dtype(at::kLong));

  std::vector<std::unique_ptr<Contestant>> contestants;
  for (const std::string& algorithm : options.algorithms) {
    contestants.push_back(std::make_unique<Contestant>(algorithm, options, ranks, device, costs));
    result.algorithms.emplace_back().algorithm = algorithm;
  }
  // One step to warm up, those that are measured for the plan, one to get used to the new plan.
  const std::int64_t warmup = options.ranks.profile_steps + 2;
  std::optional<Progress> progress;
  if (ranks.first()) progress.emplace("steps", static_cast<std::size_t>(warmup + options.steps));
  std::vector<std::vector<CategoryTimes>> parts(contestants.size());
  std::vector<std::vector<double>> messages(contestants.size());
  Communicator& communicator = *ranks.communicator();
  for (std::int64_t step = 0; step < warmup + options.steps; ++step) {
    for (std::size_t i = 0; i < contestants.size(); ++i) {
      const double sent = communicator.traffic().sent;
      const double seconds = contestants[i]->step(images, labels, communicator);
      if (step < warmup) continue;
      result.algorithms[i].bytes = communicator.traffic().sent - sent;
      result.algorithms[i].seconds.push_back(seconds);
      const Trace trace = contestants[i]->kfac().trace();
      parts[i].push_back(breakdown(trace, 0));
      messages[i].push_back(factor_messages(trace));
    }
    if (progress) progress->advance();
  }
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    IterationSamples& samples = result.algorithms[i];
    samples.seconds = slowest(ranks, samples.seconds);
    samples.measured_parts = medians(parts[i]);
    samples.factor_messages = quantile(messages[i], 0.5);
    Preconditioner& kfac = contestants[i]->kfac();
    const Simulation predicted = simulate(kfac.plan().value(), kfac.model(), costs);
    samples.predicted = predicted.iteration.value();
    samples.predicted_parts = breakdown(predicted.trace, 0);
  }
  if (!options.trace.empty() && ranks.first()) {
    std::ostringstream text;
    contestants.back()->kfac().trace().write_perfetto(text);
    write_file_atomically(options.trace, text.str());
  }
  return result;
}

std::string to_text(const IterationBenchOptions& options, const IterationBenchResult& result) {
  std::string text = fmt::format(
      "{} (width {}), batch {} on each of {} ranks, {} on {}; {} steps of each, interleaved; {}\n",
      options.model, options.width, options.batch, result.world, fmt::join(options.input, "x"),
      options.device, options.steps, result.costs);
  std::vector<Table::Column> columns = {{"algorithm", Table::Align::kLeft},
                                        {"median ms"},
                                        {"quartiles ms"},
                                        {"predicted ms"},
                                        {"error %"},
                                        {"sent MB"},
                                        {"factor messages ms"},
                                        {"hidden %"}};
  for (const Category category : kCategories)
    columns.push_back({std::string(category_title(category))});
  Table table(columns);
  double errors = 0;
  for (const IterationSamples& samples : result.algorithms) {
    const Spread spread = spread_of(samples.seconds);
    const double error = samples.predicted / spread.median - 1;
    errors += std::abs(error);
    std::vector<std::string> row = {
        samples.algorithm,
        fmt::format("{:.1f}", spread.median * kMilliseconds),
        fmt::format("{:.1f} to {:.1f}", spread.low * kMilliseconds, spread.high * kMilliseconds),
        fmt::format("{:.1f}", samples.predicted * kMilliseconds),
        fmt::format("{:+.1f}", 100 * error),
        fmt::format("{:.2f}", samples.bytes / 1e6),
        fmt::format("{:.1f}", samples.factor_messages * kMilliseconds),
        hidden_text(samples)};
    for (const Category category : kCategories) {
      row.push_back(fmt::format("{:.1f}/{:.1f}",
                                samples.measured_parts[category].value() * kMilliseconds,
                                samples.predicted_parts[category].value() * kMilliseconds));
    }
    table.add_row(row);
  }
  text += table.text();
  text += fmt::format("parts: measured/predicted ms of rank 0; mean error {:.1f} %\n",
                      100 * errors / static_cast<double>(result.algorithms.size()));
  return text;
}

Json to_json(const IterationBenchOptions& options, const IterationBenchResult& result) {
  Json document = {{"format", "spdkfac.bench-iteration/1"},
                   {"model", options.model},
                   {"width", options.width},
                   {"batch", options.batch},
                   {"input", options.input},
                   {"device", options.device},
                   {"threads", options.threads},
                   {"world", result.world},
                   {"steps", options.steps},
                   {"costs", result.costs},
                   {"algorithms", Json::array()}};
  for (const IterationSamples& samples : result.algorithms) {
    Json parts = Json::object();
    for (const Category category : kCategories) {
      parts[std::string(category_name(category))] = {samples.measured_parts[category].value(),
                                                     samples.predicted_parts[category].value()};
    }
    document["algorithms"].push_back({{"algorithm", samples.algorithm},
                                      {"seconds", samples.seconds},
                                      {"predicted", samples.predicted},
                                      {"sent_bytes", samples.bytes},
                                      {"factor_messages", samples.factor_messages},
                                      {"parts", parts}});
  }
  return document;
}

}  // namespace spdkfac::cli
