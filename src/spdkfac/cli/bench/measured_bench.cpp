// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <memory>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/calibrate/calibration.h"
#include "spdkfac/calibrate/contention.h"
#include "spdkfac/calibrate/machine.h"
#include "spdkfac/cli/bench/emulated_rank.h"
#include "spdkfac/cli/bench/rank_traces.h"
#include "spdkfac/cli/bench/run_bench.h"
#include "spdkfac/cli/device.h"
#include "spdkfac/cli/output.h"
#include "spdkfac/cli/ranks.h"
#include "spdkfac/cli/train_planner.h"
#include "spdkfac/comm/absent_peers.h"
#include "spdkfac/comm/emulated_link.h"
#include "spdkfac/report/breakdown.h"
#include "spdkfac/report/statistics.h"
#include "spdkfac/runtime/planners.h"

namespace spdkfac::cli {
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
  const Ranks& ranks;
  at::Device device;
  CostModel costs;
  std::int64_t profile_steps = 0;
  // The communicator for a variant; an emulated rank has its own for each.
  std::function<std::shared_ptr<Communicator>()> communicator;
};

// One variant and the ranks that it runs on.
struct Contestant {
  std::shared_ptr<Communicator> communicator;
  std::unique_ptr<Trainee> trainee;
};

Contestant make_contestant(const Variant& variant, const BenchSetting& setting,
                           const Setup& setup) {
  Contestant contestant;
  contestant.communicator = setup.communicator();
  Distribution distribution;
  distribution.communicator = contestant.communicator;
  distribution.second_order = variant.options.second_order();
  distribution.model_name = setting.model;
  distribution.profile_steps = setup.profile_steps;
  distribution.planner =
      planner_of_costs(setup.costs, contestant.communicator->size(), variant.options);
  if (setup.ranks.alone()) {
    distribution.planner = planner_of_emulated_rank(distribution.planner, setup.costs,
                                                    contestant.communicator->rank());
  }
  KfacOptions kfac;
  kfac.trace = true;
  contestant.trainee = std::make_unique<Trainee>(setting, setup.device, kfac, distribution);
  return contestant;
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
void time_layers(Contestant& contestant, const Batch& batch) {
  contestant.trainee->kfac().time_layers(true);
  contestant.trainee->step(batch);
  contestant.trainee->kfac().time_layers(false);
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
std::vector<Samples> take_turns(std::vector<Contestant>& contestants, const BenchSetting& setting,
                                const Setup& setup, std::optional<ContentionMeter>& meter) {
  const Ranks& ranks = setup.ranks;
  // One step to warm up, those that are measured for the plan, one to get used to the new plan.
  const std::int64_t warmup = setup.profile_steps + 2;
  const Batch batch =
      random_batch(setting, setup.device, 1 + static_cast<std::uint64_t>(ranks.rank()));
  const std::int64_t steps = warmup + setting.steps;
  std::optional<Progress> progress;
  if (ranks.first()) progress.emplace(setting.model, static_cast<std::size_t>(steps));
  const RankTraces traces(ranks);
  std::vector<Samples> samples(contestants.size());
  for (std::int64_t step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < contestants.size(); ++i) {
      const Communicator& communicator = *contestants[i].communicator;
      Preconditioner& kfac = contestants[i].trainee->kfac();
      ranks.communicator()->barrier("start of a step");
      if (step >= warmup) {
        time_layers(contestants[i], batch);
        ranks.communicator()->barrier("start of a step");
      }
      const double sent = communicator.traffic().sent;
      const double seconds = contestants[i].trainee->step(batch);
      if (step < warmup) continue;
      samples[i].seconds.push_back(seconds);
      samples[i].sent_bytes = communicator.traffic().sent - sent;
      Trace trace = traces.last_step(kfac);
      samples[i].parts.push_back(mean_breakdown(trace));
      samples[i].factor_messages.push_back(factor_messages(trace).value());
      samples[i].last = std::move(trace);
    }
    if (meter && step + 1 >= warmup) meter->round();
    if (progress) progress->advance();
  }
  return samples;
}

// The steps as each contestant has timed them. Passes are the same whatever the algorithm: they are
// set to the mean of all contestants, which varies less.
std::vector<TimedSteps> timed_steps(const std::vector<Contestant>& contestants) {
  std::vector<TimedSteps> timed;
  for (const Contestant& contestant : contestants) {
    timed.push_back(contestant.trainee->kfac().timed_steps());
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
Predicted predict_steps(const TimedSteps& timed, const CostModel& costs, const Plan& plan,
                        const std::function<CategoryTimes(const Predicted&)>& parts_of) {
  const auto simulated = [&](std::size_t step) {
    return predict(timed.model, costs, plan, {.slow_parts = timed.slowness[step]});
  };
  std::vector<std::pair<double, std::size_t>> iterations;
  std::vector<CategoryTimes> parts;
  for (std::size_t step = 0; step < timed.slowness.size(); ++step) {
    const Predicted one = simulated(step);
    iterations.emplace_back(one.prediction.iteration.value(), step);
    parts.push_back(parts_of(one));
  }
  std::sort(iterations.begin(), iterations.end());
  const auto [iteration, middle] = iterations[iterations.size() / 2];
  Predicted result = simulated(middle);
  result.prediction.iteration = Seconds(iteration);
  result.prediction.breakdown = medians(parts);
  return result;
}

RunTimes run_times(const Ranks& ranks, const Samples& samples) {
  RunTimes times;
  times.samples = ranks.largest(samples.seconds);
  times.iteration = Seconds(quantile(times.samples, 0.5));
  times.breakdown = medians(samples.parts);
  times.sent_bytes = samples.sent_bytes;
  times.factor_messages = Seconds(quantile(samples.factor_messages, 0.5));
  return times;
}

std::vector<KfacMemory> memory_of_ranks(const Ranks& ranks, const KfacMemory& mine) {
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
                   RunBenchResult& result) {
  std::vector<Contestant> contestants;
  for (const Variant& variant : experiment.variants) {
    contestants.push_back(make_contestant(variant, setting, setup));
  }
  std::optional<ContentionMeter> meter = make_meter(setup);
  std::vector<Samples> samples = take_turns(contestants, setting, setup, meter);
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
  std::vector<TimedSteps> timed = timed_steps(contestants);
  if (setup.ranks.alone()) {
    for (TimedSteps& one : timed) one.model = with_absent_times(one.model, costs);
  }
  // The mean beside the mean; an emulated rank stands for the one that computes longest.
  const auto parts_of = [&](const Predicted& one) {
    return setup.ranks.alone() ? one.prediction.breakdown : mean_breakdown(one.trace);
  };
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    const Variant& variant = experiment.variants[i];
    Preconditioner& kfac = contestants[i].trainee->kfac();
    const Predicted predicted = predict_steps(timed[i], costs, kfac.plan().value(), parts_of);
    Run run;
    run.model = setting.model;
    run.world = contestants[i].communicator->size();
    run.algorithm = variant.options.algorithm;
    run.label = variant.label;
    run.predicted = run_times(predicted);
    run.measured = run_times(setup.ranks, samples[i]);
    if (experiment.name == "placement") run.owners = predicted.plan.factors;
    result.runs.push_back(std::move(run));
    Trace last = std::move(samples[i].last);
    if (setup.ranks.alone()) {  // it is one rank of an emulated world
      Trace in_world(contestants[i].communicator->size());
      in_world.append(last, contestants[i].communicator->rank(), Seconds(0));
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

Setup real_setup(const Ranks& ranks, at::Device device, const RankOptions& options,
                 RecordHead& head) {
  head.mode = RecordMode::kMeasured;
  const CostModel costs = costs_of_ranks(options, ranks, device, [](const auto&) {});
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
CostModel emulated_costs(const RankOptions& options, const Ranks& ranks, at::Device device,
                         int world) {
  const CostModel network = simulated_cluster(options).for_world(world);
  RankOptions measured;  // without a cluster
  measured.recalibrate = options.recalibrate;
  CostModel costs = costs_of_ranks(measured, ranks, device, [](const auto&) {});
  costs.name = fmt::format("network of {}, computation of this machine", network.name);
  costs.world = world;
  costs.all_reduce = network.all_reduce;
  costs.reduce = network.reduce;
  costs.broadcast = network.broadcast;
  return costs;
}

Setup emulated_setup(const Ranks& ranks, at::Device device, const MeasuredBenchOptions& options,
                     RecordHead& head) {
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
                std::make_shared<AbsentPeers>(/*rank=*/0, world),
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
  const at::Device device = find_device(options.settings.front().device);
  const Ranks ranks(options.ranks, device);
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
    measure_model(experiment, setting, setup, result);
  }
  return result;
}

}  // namespace spdkfac::cli
