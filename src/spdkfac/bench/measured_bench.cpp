// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>
#include <utility>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/base/json.h"
#include "spdkfac/bench/emulated_rank.h"
#include "spdkfac/bench/rank_traces.h"
#include "spdkfac/bench/replay.h"
#include "spdkfac/bench/run_bench.h"
#include "spdkfac/bench/setup.h"
#include "spdkfac/calibrate/calibration.h"
#include "spdkfac/calibrate/contention.h"
#include "spdkfac/calibrate/machine.h"
#include "spdkfac/runtime/planners.h"
#include "spdkfac/runtime/step_meter.h"
#include "spdkfac/sim/predict.h"
#include "spdkfac/trace/breakdown.h"
#include "spdkfac/trace/statistics.h"
#include "spdkfac/train/device.h"
#include "spdkfac/train/rank_report.h"

namespace spdkfac::bench {
namespace {

// Of the messages that computation is measured beside, in elements.
constexpr std::int64_t kLargestMessage = 1 << 22;

// What one variant did in the steps that count.
struct Samples {
  std::vector<double> seconds;
  std::vector<CategoryTimes> parts;
  std::vector<double> factor_messages;
  double sent_bytes = 0;
  Trace last;
};

void add_note(report::RecordHead& head, const std::string& text) {
  head.note += (head.note.empty() ? "" : " ") + text;
}

// One variant and the ranks that it runs on.
struct MeasuredVariant {
  std::shared_ptr<Communicator> communicator;
  std::unique_ptr<BenchModel> model;
};

MeasuredVariant make_variant(const Variant& variant, const BenchSetting& setting,
                             const Setup& setup) {
  MeasuredVariant measured;
  measured.communicator = setup.communicator();
  Distribution distribution;
  distribution.communicator = measured.communicator;
  distribution.model_name = setting.model;
  distribution.profile_steps = setup.profile_steps;
  distribution.plans = PlanForCosts{setup.costs, variant.options};
  if (setup.ranks.alone()) {
    const Communicator& ranks = *measured.communicator;
    const Planner planner = runtime::planner_of_costs(setup.costs, ranks.size(), variant.options);
    distribution.plans = CustomPlanner{planner_of_emulated_rank(planner, setup.costs, ranks.rank()),
                                       variant.options.second_order()};
  }
  KfacOptions kfac;
  kfac.trace = true;
  measured.model = std::make_unique<BenchModel>(setting, setup.device, kfac, distribution);
  return measured;
}

// Before every step that counts: machines change their speed, and what a prediction is made of
// should be as old as what it is held against.
void time_layers(MeasuredVariant& measured, const data::Batch& batch) {
  StepMeter meter(measured.model->kfac());
  meter.time_layers(true);
  measured.model->step(batch);
  meter.time_layers(false);
}

// Keeps measuring what computation and messages take from each other, between the steps. None where
// messages take nothing from a rank, as on an emulated link.
std::optional<calibrate::ContentionMeter> make_meter(const Setup& setup) {
  if (setup.emulated()) return std::nullopt;
  std::vector<plan::Measurement> all_reduce;
  for (std::int64_t elements = calibrate::kSmallestMessage; elements <= kLargestMessage;
       elements *= 2) {
    all_reduce.push_back({static_cast<double>(elements), setup.costs.all_reduce.time(elements)});
  }
  return std::optional<calibrate::ContentionMeter>(
      std::in_place, calibrate::Bench{*setup.ranks.communicator(), setup.device}, all_reduce);
}

// One step of each in turn; the first ones, in which plans are made and made again, do not count.
std::vector<Samples> take_turns(std::vector<MeasuredVariant>& variants, const BenchSetting& setting,
                                const Setup& setup,
                                std::optional<calibrate::ContentionMeter>& meter,
                                const ProgressListener& progress) {
  const train::Ranks& ranks = setup.ranks;
  // One step to warm up, those that are measured for the plan, one to get used to the new plan.
  const std::int64_t warmup = setup.profile_steps + 2;
  const data::Batch batch =
      random_batch(setting, setup.device, 1 + static_cast<std::uint64_t>(ranks.rank()));
  const std::int64_t steps = warmup + setting.steps;
  const bool tells = ranks.first() && progress.begin && progress.advance;
  if (tells) progress.begin(setting.model, static_cast<std::size_t>(steps));
  const RankTraces traces(ranks);
  std::vector<Samples> samples(variants.size());
  for (std::int64_t step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < variants.size(); ++i) {
      const Communicator& communicator = *variants[i].communicator;
      Preconditioner& kfac = variants[i].model->kfac();
      ranks.communicator()->barrier("start of a step");
      if (step >= warmup) {
        time_layers(variants[i], batch);
        ranks.communicator()->barrier("start of a step");
      }
      const double sent = communicator.traffic().sent;
      const double seconds = variants[i].model->step(batch);
      if (step < warmup) continue;
      samples[i].seconds.push_back(seconds);
      samples[i].sent_bytes = communicator.traffic().sent - sent;
      Trace trace = traces.last_step(kfac);
      samples[i].parts.push_back(mean_breakdown(trace));
      samples[i].factor_messages.push_back(factor_messages(trace).value());
      samples[i].last = std::move(trace);
    }
    if (meter && step + 1 >= warmup) meter->round();
    if (tells) progress.advance();
  }
  return samples;
}

// What the costs and the layer table of the model say before anything was measured; nothing where
// the costs cannot tell the time of these layers. Only the first rank writes it down.
std::vector<std::optional<IterationResult>> forecasts(const Experiment& experiment,
                                                      const BenchSetting& setting,
                                                      const Setup& setup, int world,
                                                      report::RecordHead& head) {
  std::vector<std::optional<IterationResult>> results(experiment.variants.size());
  if (!setup.ranks.first()) return results;
  try {
    const ModelSpec model = describe_setting(setting);
    for (std::size_t i = 0; i < results.size(); ++i) {
      IterationResult one =
          predict(model, setup.costs, world, experiment.variants[i].options, {}).result;
      if (!setup.emulated()) one.breakdown = mean_breakdown(one.trace);
      results[i] = std::move(one);
    }
  } catch (const ConfigError& error) {
    results.assign(results.size(), std::nullopt);
    add_note(head, fmt::format("No forecast of {}: {}.", setting.model, error.what()));
  }
  return results;
}

IterationResult measured_result(const Setup& setup, const MeasuredVariant& variant,
                                Samples samples) {
  IterationResult result;
  result.samples = setup.ranks.largest(samples.seconds);
  result.iteration = Seconds(trace::quantile(result.samples, 0.5));
  result.breakdown = median_parts(samples.parts);
  result.sent_bytes = samples.sent_bytes;
  result.factor_messages = Seconds(trace::quantile(samples.factor_messages, 0.5));
  result.trace = std::move(samples.last);
  if (setup.emulated()) {  // it is one rank of an emulated world
    Trace in_world(variant.communicator->size());
    in_world.append(result.trace, variant.communicator->rank(), Seconds(0));
    result.trace = std::move(in_world);
  }
  return result;
}

// The costs of replays: those of the setup, with what the meter has found between the steps.
CostModel replay_costs(const Setup& setup, const BenchSetting& setting,
                       const std::optional<calibrate::ContentionMeter>& meter,
                       report::RecordHead& head) {
  CostModel costs = setup.costs;
  // Whatever the cluster file says, the measured steps do both.
  costs.overheads.unpack_on_arrival = true;
  costs.task_order = TaskOrder::kFactorsBetweenPasses;
  if (!meter) return costs;
  const calibrate::RatesTogether rates = meter->rates();
  costs.overheads.compute_rate_under_communication = rates.computation;
  costs.overheads.communication_rate_under_computation = rates.communication;
  add_note(head, fmt::format(
                     "{}: between the steps computation ran at {:.2f} of its speed while messages "
                     "were under way, messages at {:.2f} of theirs; replays use these rates.",
                     setting.model, rates.computation, rates.communication));
  return costs;
}

void measure_model(const Experiment& experiment, const BenchSetting& setting, const Setup& setup,
                   const ProgressListener& progress, RunBenchResult& result) {
  std::vector<MeasuredVariant> variants;
  for (const Variant& variant : experiment.variants) {
    variants.push_back(make_variant(variant, setting, setup));
  }
  const int world = variants.front().communicator->size();
  auto forecast = forecasts(experiment, setting, setup, world, result.head);
  std::optional<calibrate::ContentionMeter> meter = make_meter(setup);
  std::vector<Samples> samples = take_turns(variants, setting, setup, meter, progress);
  const CostModel costs = replay_costs(setup, setting, meter, result.head);
  std::vector<TimedSteps> timed;
  for (const MeasuredVariant& variant : variants) {
    timed.push_back(StepMeter(variant.model->kfac()).timed_steps());
  }
  average_passes(timed);
  if (setup.emulated()) {
    for (TimedSteps& one : timed) one.model = with_absent_times(one.model, costs);
  }
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const Variant& variant = experiment.variants[i];
    Preconditioner& kfac = variants[i].model->kfac();
    const Plan plan = kfac.plan().value();
    report::Run run;
    run.model = setting.model;
    run.world = world;
    run.algorithm = variant.options.algorithm;
    run.label = variant.label;
    run.forecast = std::move(forecast[i]);
    // The mean beside the mean; an emulated rank stands for the one that computes longest.
    run.replay = replay(timed[i], costs, plan,
                        setup.emulated() ? BreakdownOf::kLongestRank : BreakdownOf::kMeanOfRanks);
    run.measured = measured_result(setup, variants[i], std::move(samples[i]));
    if (experiment.table == report::RunTable::kPlacement) run.owners = plan.placements;
    result.runs.push_back(std::move(run));
    result.memory.push_back(train::gather(setup.ranks, {.memory = kfac.memory()}));
  }
}

Json options_of(const Experiment& experiment, const MeasuredBenchOptions& options) {
  Json json = {{"settings", Json::array()}, {"algorithms", Json::array()}};
  for (const BenchSetting& setting : options.settings) json["settings"].push_back(to_json(setting));
  for (const Variant& variant : experiment.variants) json["algorithms"].push_back(variant.label);
  json["profile_steps"] = options.ranks.profile_steps;
  json["backend"] = options.ranks.backend;
  json["emulated_world"] = options.emulated_world;
  return json;
}

}  // namespace

RunBenchResult measure_runs(const Experiment& all, const MeasuredBenchOptions& options) {
  Experiment experiment = all;
  std::erase_if(experiment.variants, [](const Variant& variant) { return variant.world; });
  const at::Device device = train::find_device(options.settings.front().device);
  const train::Ranks ranks(options.ranks, device);
  if (options.settings.front().threads > 0) at::set_num_threads(options.settings.front().threads);
  RunBenchResult result;
  result.table = experiment.table;
  result.first_rank = ranks.first();
  result.head.experiment = experiment.name;
  result.head.options = options_of(experiment, options);
  ranks.require_same("the options", result.head.options.dump());
  const Setup setup = make_setup(ranks, device, options, result.head);
  const calibrate::Machine machine = calibrate::find_machine(*ranks.communicator(), device);
  result.head.device = fmt::format("{}, {} thread{} per rank", machine.device, machine.threads,
                                   machine.threads == 1 ? "" : "s");
  for (const BenchSetting& setting : options.settings) {
    measure_model(experiment, setting, setup, options.progress, result);
  }
  return result;
}

}  // namespace spdkfac::bench
