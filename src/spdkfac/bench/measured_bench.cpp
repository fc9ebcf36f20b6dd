// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <memory>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/base/json.h"
#include "spdkfac/bench/emulated_rank.h"
#include "spdkfac/bench/rank_traces.h"
#include "spdkfac/bench/run_bench.h"
#include "spdkfac/calibrate/calibration.h"
#include "spdkfac/calibrate/contention.h"
#include "spdkfac/calibrate/machine.h"
#include "spdkfac/comm/emulated_link.h"
#include "spdkfac/comm/mirrored_peers.h"
#include "spdkfac/runtime/planners.h"
#include "spdkfac/runtime/step_meter.h"
#include "spdkfac/trace/breakdown.h"
#include "spdkfac/trace/statistics.h"
#include "spdkfac/train/device.h"
#include "spdkfac/train/ranks.h"
#include "spdkfac/train/train_planner.h"

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

// Where the steps run and what they cost there.
struct Setup {
  const train::Ranks& ranks;
  at::Device device;
  CostModel costs;
  std::int64_t profile_steps = 0;
  // The communicator for a variant; an emulated rank has its own for each.
  std::function<std::shared_ptr<Communicator>()> communicator;
};

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
    const Planner planner = planner_of_costs(setup.costs, ranks.size(), variant.options);
    distribution.plans = CustomPlanner{planner_of_emulated_rank(planner, setup.costs, ranks.rank()),
                                       variant.options.second_order()};
  }
  KfacOptions kfac;
  kfac.trace = true;
  measured.model = std::make_unique<BenchModel>(setting, setup.device, kfac, distribution);
  return measured;
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

// Before every step that counts: machines change their speed, and what a prediction is made of
// should be as old as what it is held against.
void time_layers(MeasuredVariant& measured, const Batch& batch) {
  StepMeter meter(measured.model->kfac());
  meter.time_layers(true);
  measured.model->step(batch);
  meter.time_layers(false);
}

// Keeps measuring what computation and messages take from each other, between the steps. None where
// messages take nothing from a rank, as on an emulated link.
std::optional<ContentionMeter> make_meter(const Setup& setup) {
  if (setup.ranks.alone()) return std::nullopt;
  std::vector<Measurement> all_reduce;
  for (std::int64_t elements = kSmallestMessage; elements <= kLargestMessage; elements *= 2) {
    all_reduce.push_back({static_cast<double>(elements), setup.costs.all_reduce.time(elements)});
  }
  return std::optional<ContentionMeter>(
      std::in_place, Bench{*setup.ranks.communicator(), setup.device}, all_reduce);
}

// One step of each in turn; the first ones, in which plans are made and made again, do not count.
std::vector<Samples> take_turns(std::vector<MeasuredVariant>& variants, const BenchSetting& setting,
                                const Setup& setup, std::optional<ContentionMeter>& meter,
                                const ProgressListener& progress) {
  const train::Ranks& ranks = setup.ranks;
  // One step to warm up, those that are measured for the plan, one to get used to the new plan.
  const std::int64_t warmup = setup.profile_steps + 2;
  const Batch batch =
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

// The steps as each variant has timed them. Passes are the same whatever the algorithm: they are
// set to the mean of all variants, which varies less.
std::vector<TimedSteps> timed_steps(const std::vector<MeasuredVariant>& variants) {
  std::vector<TimedSteps> timed;
  for (const MeasuredVariant& measured : variants) {
    timed.push_back(StepMeter(measured.model->kfac()).timed_steps());
  }
  for (const auto pass : {&LayerTimes::forward, &LayerTimes::backward}) {
    for (std::size_t layer = 0; layer < timed.front().model.layers.size(); ++layer) {
      Seconds sum;
      for (const TimedSteps& one : timed) sum += one.model.layers[layer].times.value().*pass;
      for (TimedSteps& one : timed) {
        one.model.layers[layer].times.value().*pass = sum / static_cast<double>(timed.size());
      }
    }
  }
  return timed;
}

// Simulates each timed step, in which now one rank and now another is late, and takes medians as of
// measured steps. The step in the middle is shown.
report::Predicted predict_steps(
    const TimedSteps& timed, const CostModel& costs, const Plan& plan,
    const std::function<CategoryTimes(const report::Predicted&)>& parts_of) {
  const auto simulated = [&](std::size_t step) {
    return report::predict(timed.model, costs, plan, {.slow_parts = timed.slowness[step]});
  };
  std::vector<std::pair<double, std::size_t>> iterations;
  std::vector<CategoryTimes> parts;
  for (std::size_t step = 0; step < timed.slowness.size(); ++step) {
    const report::Predicted one = simulated(step);
    iterations.emplace_back(one.prediction.iteration.value(), step);
    parts.push_back(parts_of(one));
  }
  std::sort(iterations.begin(), iterations.end());
  const auto [iteration, middle] = iterations[iterations.size() / 2];
  report::Predicted result = simulated(middle);
  result.prediction.iteration = Seconds(iteration);
  result.prediction.breakdown = medians(parts);
  return result;
}

RunTimes run_times(const train::Ranks& ranks, const Samples& samples) {
  RunTimes times;
  times.samples = ranks.largest(samples.seconds);
  times.iteration = Seconds(quantile(times.samples, 0.5));
  times.breakdown = medians(samples.parts);
  times.sent_bytes = samples.sent_bytes;
  times.factor_messages = Seconds(quantile(samples.factor_messages, 0.5));
  return times;
}

std::vector<KfacMemory> memory_of_ranks(const train::Ranks& ranks, const KfacMemory& mine) {
  std::vector<KfacMemory> all;
  const std::string text =
      Json({mine.factors.value(), mine.inverses.value(), mine.buffers.value()}).dump();
  for (const std::string& one : ranks.texts(text)) {
    const auto bytes = parse_json(one, "memory of a rank").get<std::vector<std::int64_t>>();
    all.push_back({Bytes(bytes.at(0)), Bytes(bytes.at(1)), Bytes(bytes.at(2))});
  }
  return all;
}

void measure_model(const Experiment& experiment, const BenchSetting& setting, const Setup& setup,
                   const ProgressListener& progress, RunBenchResult& result) {
  std::vector<MeasuredVariant> variants;
  for (const Variant& variant : experiment.variants) {
    variants.push_back(make_variant(variant, setting, setup));
  }
  std::optional<ContentionMeter> meter = make_meter(setup);
  std::vector<Samples> samples = take_turns(variants, setting, setup, meter, progress);
  CostModel costs = setup.costs;
  // Whatever the cluster file says, the measured steps do both.
  costs.overheads.unpack_on_arrival = true;
  costs.task_order = TaskOrder::kFactorsBetweenPasses;
  if (meter) {
    const RatesTogether rates = meter->rates();
    costs.overheads.compute_rate_under_communication = rates.computation;
    costs.overheads.communication_rate_under_computation = rates.communication;
    result.head.note += fmt::format(
        "{}{}: between the steps computation had {:.2f} of its speed beside messages, messages "
        "{:.2f} of theirs; predictions are made with that.",
        result.head.note.empty() ? "" : " ", setting.model, rates.computation, rates.communication);
  }
  std::vector<TimedSteps> timed = timed_steps(variants);
  if (setup.ranks.alone()) {
    for (TimedSteps& one : timed) one.model = with_absent_times(one.model, costs);
  }
  // The mean beside the mean; an emulated rank stands for the one that computes longest.
  const auto parts_of = [&](const report::Predicted& one) {
    return setup.ranks.alone() ? one.prediction.breakdown : mean_breakdown(one.trace);
  };
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const Variant& variant = experiment.variants[i];
    Preconditioner& kfac = variants[i].model->kfac();
    const report::Predicted predicted =
        predict_steps(timed[i], costs, kfac.plan().value(), parts_of);
    Run run;
    run.model = setting.model;
    run.world = variants[i].communicator->size();
    run.algorithm = variant.options.algorithm;
    run.label = variant.label;
    run.predicted = run_times(predicted);
    run.measured = run_times(setup.ranks, samples[i]);
    if (experiment.name == "placement") run.owners = predicted.plan.placements;
    result.runs.push_back(std::move(run));
    Trace last = std::move(samples[i].last);
    if (setup.ranks.alone()) {  // it is one rank of an emulated world
      Trace in_world(variants[i].communicator->size());
      in_world.append(last, variants[i].communicator->rank(), Seconds(0));
      last = std::move(in_world);
    }
    result.traces.push_back({predicted.trace, std::move(last)});
    result.memory.push_back(memory_of_ranks(setup.ranks, kfac.memory()));
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

Setup real_setup(const train::Ranks& ranks, at::Device device, const train::RankOptions& options,
                 RecordHead& head) {
  head.mode = RecordMode::kMeasured;
  const CostModel costs = train::costs_of_ranks(options, ranks, device, [](const auto&) {});
  head.cluster = costs.name;
  return {ranks, device, costs, options.profile_steps, [&ranks] { return ranks.communicator(); }};
}

Seconds time_of(const CostModel& costs, Operation operation, std::int64_t elements) {
  switch (operation) {
    case Operation::kAllReduce:
      return costs.all_reduce.time(elements);
    case Operation::kReduce:
    case Operation::kAllGather:  // no plan sends one; like a reduce it is half of an all-reduce
      return costs.reduce.time(elements);
    case Operation::kBroadcast:
      return costs.broadcast.time(elements);
    case Operation::kBarrier:
      break;
  }
  return Seconds(0);
}

// The network of a cluster with this machine's computation.
CostModel emulated_costs(const train::RankOptions& options, const train::Ranks& ranks,
                         at::Device device, int world) {
  const CostModel network = train::simulated_cluster(options).for_world(world);
  train::RankOptions measured;  // without a cluster
  measured.recalibrate = options.recalibrate;
  CostModel costs = train::costs_of_ranks(measured, ranks, device, [](const auto&) {});
  costs.name = fmt::format("network of {}, computation of this machine", network.name);
  costs.world = world;
  costs.all_reduce = network.all_reduce;
  costs.reduce = network.reduce;
  costs.broadcast = network.broadcast;
  return costs;
}

Setup emulated_setup(const train::Ranks& ranks, at::Device device,
                     const MeasuredBenchOptions& options, RecordHead& head) {
  const int world = options.emulated_world;
  const CostModel costs = emulated_costs(options.ranks, ranks, device, world);
  head.mode = RecordMode::kEmulated;
  head.cluster = costs.name;
  head.note = fmt::format(
      "Emulated: one process does the work of one of {} ranks, for each plan of the one that "
      "computes longest. The others are taken to hold the same factors and to be as far as it is; "
      "messages take the time that the cluster's cost model gives.",
      world);
  return {ranks, device, costs, options.ranks.profile_steps, [costs, world, device] {
            return make_emulated_link(
                std::make_shared<MirroredPeers>(/*rank=*/0, world),
                [costs](Operation operation, std::int64_t elements) {
                  return time_of(costs, operation, elements);
                },
                device);
          }};
}

}  // namespace

RunBenchResult measure_runs(const Experiment& all, const MeasuredBenchOptions& options) {
  Experiment experiment = all;
  std::erase_if(experiment.variants, [](const Variant& variant) { return variant.world; });
  const at::Device device = train::find_device(options.settings.front().device);
  const train::Ranks ranks(options.ranks, device);
  const bool emulated = options.emulated_world > 0;
  if (ranks.alone() && !emulated) {
    throw ConfigError(fmt::format(
        "bench {}: there is one rank; start the program by mpirun -n P, predict with --simulate, "
        "or let it stand for one of many with --emulate P",
        experiment.name));
  }
  if (!ranks.alone() && emulated) {
    throw ConfigError(fmt::format("bench {}: --emulate is for one process; start it without mpirun",
                                  experiment.name));
  }
  if (options.settings.front().threads > 0) at::set_num_threads(options.settings.front().threads);
  RunBenchResult result;
  result.head.experiment = experiment.name;
  result.head.options = options_of(experiment, options);
  ranks.require_same("the options", result.head.options.dump());
  const Machine machine = find_machine(*ranks.communicator(), device);
  result.head.device = fmt::format("{}, {} thread{} a rank", machine.device, machine.threads,
                                   machine.threads == 1 ? "" : "s");
  result.first_rank = ranks.first();
  const Setup setup = emulated ? emulated_setup(ranks, device, options, result.head)
                               : real_setup(ranks, device, options.ranks, result.head);
  for (const BenchSetting& setting : options.settings) {
    measure_model(experiment, setting, setup, options.progress, result);
  }
  return result;
}

}  // namespace spdkfac::bench
