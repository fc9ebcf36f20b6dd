// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/sim/simulator.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/error.h"
#include "spdkfac/plan/compute_stream.h"
#include "spdkfac/plan/fusion_planner.h"
#include "spdkfac/sim/channel.h"
#include "spdkfac/trace/breakdown.h"

namespace spdkfac {
namespace {

// A uniform number in [0, 1) that depends on nothing but its arguments (SplitMix64).
double uniform(std::uint64_t seed, std::uint64_t rank, std::uint64_t task) {
  std::uint64_t x = seed * 0x9E3779B97F4A7C15ULL + (rank << 32) + task;
  for (int round = 0; round < 2; ++round) {
    x += 0x9E3779B97F4A7C15ULL;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
    x ^= x >> 31;
  }
  return static_cast<double>(x >> 11) * 0x1.0p-53;
}

struct Worker {
  WorkerClock clock;
  std::uint64_t tasks_done = 0;
  std::vector<Seconds> stream_ends;  // of the stream's tasks done so far
  Seconds inverse_load;
};

class Simulator {
 public:
  Simulator(const Plan& plan, const ModelSpec& model, const CostModel& costs,
            const SimulationOptions& options)
      : plan_(plan),
        model_(model),
        costs_(costs),
        options_(options),
        layers_(layer_costs(model, costs)),
        has_factors_(plan.options.second_order() && plan.step != StepKind::kGradients),
        stream_(compute_stream(model, layers_, costs.overheads, plan.world,
                               plan.options.factor_schedule, has_factors_)),
        sends_gradient_(layers_sending_gradient(plan, model.layers.size())) {
    result_.trace = Trace(plan.world);
    add_workers();
    if (options.trace) {
      const std::size_t per_rank =
          stream_.tasks.size() + plan.messages.size() + 6 * plan.factors.size();
      result_.trace.reserve(per_rank * workers_.size());
    }
  }

  IterationResult run() {
    run_stream_and_messages();
    exchange_traces();
    if (plan_.options.second_order()) {
      look_ahead([this] { invert_and_exchange(); });
      invert_and_exchange();
      unpack_inverses();
      for (Worker& worker : workers_) worker.clock.wait_until(channel_.free_at());
      precondition_everywhere();
    }
    for (const Worker& worker : workers_) {
      result_.iteration = std::max(result_.iteration, worker.clock.now());
    }
    for (const std::size_t worker : worker_of_rank_) {
      result_.inverse_load.push_back(workers_[worker].inverse_load);
    }
    return std::move(result_);
  }

 private:
  // Ranks that own nothing and are not slow do the same at the same times. Unless a trace or jitter
  // tells them apart, one worker stands for all of them.
  void add_workers() {
    std::vector<bool> special(
        static_cast<std::size_t>(plan_.world),
        options_.trace || options_.jitter > 0 || !options_.slow_parts.empty());
    for (const FactorPlacement& factor : plan_.factors) {
      if (factor.owner) special[static_cast<std::size_t>(*factor.owner)] = true;
    }
    for (const auto& [rank, factor] : options_.slow) special[static_cast<std::size_t>(rank)] = true;
    std::optional<std::size_t> ordinary;
    for (int rank = 0; rank < plan_.world; ++rank) {
      const bool shared = !special[static_cast<std::size_t>(rank)];
      worker_of_rank_.push_back(shared && ordinary ? *ordinary : workers_.size());
      if (shared && ordinary) continue;
      if (shared) ordinary = workers_.size();
      const auto slow = options_.slow.find(rank);
      Worker& worker = workers_.emplace_back(
          Worker{WorkerClock(slow == options_.slow.end() ? 1.0 : slow->second,
                             costs_.overheads.compute_rate_under_communication),
                 0,
                 {},
                 Seconds(0)});
      worker.stream_ends.reserve(stream_.tasks.size());
    }
  }

  std::size_t worker_of(int rank) const { return worker_of_rank_[static_cast<std::size_t>(rank)]; }

  std::uint32_t name(const std::string& text) {
    return options_.trace ? result_.trace.intern(text) : 0;
  }
  std::uint32_t layer_name(const char* what, int layer) {
    return options_.trace ? name(fmt::format("{} {}", what, layer_at(layer).name)) : 0;
  }
  std::uint32_t factor_name(const char* what, const FactorPlacement& factor) {
    if (!options_.trace) return 0;
    return name(fmt::format("{} {} {}", what, factor.side == FactorSide::kA ? "A" : "G",
                            layer_at(factor.layer).name));
  }
  const LayerSpec& layer_at(int layer) const {
    return model_.layers[static_cast<std::size_t>(layer)];
  }

  // With slow parts, jitter or a trace every rank is a worker of its own, so the index is the rank.
  double slowness(std::size_t index, Category category) const {
    if (options_.slow_parts.empty()) return 1;
    const Slowness& slow = options_.slow_parts[index];
    if (category == Category::kInverseComp) return slow.inverses;
    return category == Category::kPrecondition ? slow.preconditioning : slow.passes;
  }

  // Spends `work` on one worker's compute lane; returns how long it took.
  Seconds compute(std::size_t index, Seconds work, Category category, std::uint32_t label) {
    if (work <= Seconds(0)) return Seconds(0);
    Worker& worker = workers_[index];
    work = work * slowness(index, category);
    if (looks_ahead_) {
      worker.clock.expect(work);
      return Seconds(0);
    }
    if (options_.jitter > 0) {
      const double u = uniform(options_.seed, index, worker.tasks_done++);
      work = work * (1 + options_.jitter * (2 * u - 1));
    }
    const Seconds start = worker.clock.now();
    worker.clock.compute(work, channel_);
    const Seconds duration = worker.clock.now() - start;
    if (options_.trace) {
      result_.trace.add(
          {static_cast<std::int32_t>(index), label, Lane::kCompute, category, start, duration});
    }
    return duration;
  }

  void compute_everywhere(Seconds work, Category category, std::uint32_t label) {
    for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
      compute(worker, work, category, label);
    }
  }

  bool messages_slow() const { return costs_.overheads.communication_rate_under_computation < 1; }

  // Lets workers expect what they compute in `stage`, up to their next wait, without doing it.
  template <class Stage>
  void look_ahead(const Stage& stage) {
    if (!messages_slow()) return;
    looks_ahead_ = true;
    stage();
    looks_ahead_ = false;
  }

  // How long a message takes from `start` on: while any worker computes, it is slower.
  Seconds beside_computation(Seconds start, Seconds alone) const {
    if (!messages_slow()) return alone;
    const double rate = costs_.overheads.communication_rate_under_computation;
    Seconds computing(0);
    for (const Worker& worker : workers_) {
      computing = std::max(computing, worker.clock.computes_from(start, channel_));
    }
    // Either it ends beside the computation, or what that costs it comes on top.
    return std::min(alone / rate, alone + computing * (1 - rate));
  }

  // A collective that starts when the last worker has come to it.
  Seconds carry(Seconds ready, Seconds alone, Category category, std::uint32_t label,
                std::int64_t elements) {
    if (looks_ahead_) return ready;
    const Seconds start = std::max(ready, channel_.free_at());
    const Seconds duration = beside_computation(start, alone);
    const Interval interval = channel_.carry(start, duration);
    if (options_.trace && duration > Seconds(0)) {
      for (int rank = 0; rank < plan_.world; ++rank) {
        result_.trace.add(
            {rank, label, Lane::kChannel, category, interval.start, duration, elements});
      }
    }
    return interval.end;
  }

  Seconds last_worker() const {
    Seconds last(0);
    for (const Worker& worker : workers_) last = std::max(last, worker.clock.now());
    return last;
  }

  // --- forward, backward, factors and their messages ---

  std::size_t release_of(const Message& message) const {
    std::size_t release = 0;
    for (const Member& member : message.members) {
      const auto& releases = member.kind == TensorKind::kFactorA   ? stream_.release_a
                             : member.kind == TensorKind::kFactorG ? stream_.release_g
                                                                   : stream_.release_gradient;
      release = std::max(release, releases[static_cast<std::size_t>(member.layer)]);
    }
    return release;
  }

  bool is_trace(const Message& message) const {
    return message.members.front().kind == TensorKind::kTrace;
  }

  MemberSize size_of(const Member& member) const {
    return member_size(layer_at(member.layer), member.kind);
  }

  Seconds time_of(const Message& message) const {
    std::int64_t tensors = 0;
    for (const Member& member : message.members) tensors += size_of(member).tensors;
    return message_time(costs_, message.route, message.elements, tensors);
  }

  Seconds work_of(std::size_t first, std::size_t end) const {
    Seconds work(0);
    if (!messages_slow()) return work;
    for (std::size_t i = first; i < end; ++i) work += stream_.tasks[i].duration;
    return work;
  }

  void expect(std::size_t worker, Seconds passes) {
    workers_[worker].clock.expect(passes * slowness(worker, Category::kForwardBackward));
  }

  void advance(std::size_t worker_index, std::size_t last_task) {
    static constexpr const char* kVerbs[] = {"factor A", "forward", "backward", "factor G"};
    Worker& worker = workers_[worker_index];
    while (worker.stream_ends.size() <= last_task) {
      const std::size_t index = worker.stream_ends.size();
      const StreamTask& task = stream_.tasks[index];
      if (index == stream_.join) {
        worker.clock.wait_until(channel_.free_at());
        expect(worker_index, work_of(stream_.join, stream_.tasks.size()));
      }
      if (options_.trace && task_names_.size() <= index) {
        task_names_.push_back(layer_name(kVerbs[static_cast<std::size_t>(task.kind)], task.layer));
      }
      compute(worker_index, task.duration, category_of(task.kind),
              options_.trace ? task_names_[index] : 0);
      worker.stream_ends.push_back(worker.clock.now());
    }
  }

  // Messages start in plan order. What a worker does before it reaches a message is slowed only by
  // earlier messages, so each can be settled before the next is looked at.
  void run_stream_and_messages() {
    bool behind_join = false;
    const Seconds work = work_of(0, stream_.join);
    for (std::size_t worker = 0; worker < workers_.size(); ++worker) expect(worker, work);
    for (const Message& message : plan_.messages) {
      if (is_trace(message)) continue;
      const std::size_t release = release_of(message);
      if (behind_join && release < stream_.join) {
        throw ConfigError(
            "plan: a gradient message stands behind a factor message of a bulk "
            "schedule, which waits for it; make the plan again");
      }
      behind_join = behind_join || release >= stream_.join;
      Seconds ready(0);
      for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
        advance(worker, release);
        ready = std::max(ready, workers_[worker].stream_ends[release]);
      }
      message_arrivals_.push_back(carry(ready, time_of(message), category_of(message, model_),
                                        name(describe(message)), message.elements));
    }
    for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
      advance(worker, stream_.tasks.size() - 1);
    }
    if (costs_.overheads.unpack_on_arrival) unpack_factors();
    for (Worker& worker : workers_) worker.clock.wait_until(channel_.free_at());
    if (!costs_.overheads.unpack_on_arrival) unpack_factors();
  }

  Seconds host() const { return plan_.world > 1 ? costs_.overheads.host_per_tensor : Seconds(0); }

  // In the order of the plan, each when its message has arrived. A factor that was reduced is
  // unpacked by its root alone.
  void unpack_factors() {
    if (plan_.world == 1) return;
    auto arrival = message_arrivals_.begin();
    for (const Message& message : plan_.messages) {
      if (is_trace(message)) continue;
      for (Worker& worker : workers_) worker.clock.wait_until(*arrival);
      ++arrival;
      for (const Member& member : message.members) {
        if (member.kind != TensorKind::kFactorA && member.kind != TensorKind::kFactorG) continue;
        const double elements = static_cast<double>(size_of(member).elements);
        const Seconds work = host() + costs_.overheads.unpack_per_element * elements;
        const auto label =
            layer_name(member.kind == TensorKind::kFactorA ? "unpack factor A" : "unpack factor G",
                       member.layer);
        if (message.route.root) {
          compute(worker_of(*message.route.root), work, Category::kFactorComp, label);
        } else {
          compute_everywhere(work, Category::kFactorComp, label);
        }
      }
    }
  }

  void exchange_traces() {
    for (const Message& message : plan_.messages) {
      if (!is_trace(message)) continue;
      const Seconds arrived = carry(last_worker(), time_of(message), Category::kFactorComm,
                                    name(describe(message)), message.elements);
      for (Worker& worker : workers_) worker.clock.wait_until(arrived);
    }
  }

  // --- inverses ---

  void invert(const FactorPlacement& factor) {
    const Seconds work = layers_[static_cast<std::size_t>(factor.layer)].inverse(factor.side);
    const auto label = factor_name("invert", factor);
    const auto on = [&](std::size_t worker) {
      workers_[worker].inverse_load += compute(worker, work, Category::kInverseComp, label);
    };
    if (factor.owner) {
      on(worker_of(*factor.owner));
    } else {
      for (std::size_t worker = 0; worker < workers_.size(); ++worker) on(worker);
    }
  }

  // Every worker prepares the same buffer; the broadcast starts when the last has come to it.
  void broadcast_inverse(const ExchangeStep& step) {
    const FactorPlacement& factor = plan_.factors[step.last];
    const Seconds work =
        host() + costs_.overheads.pack_per_element * static_cast<double>(step.elements);
    compute_everywhere(work, Category::kInverseComp, factor_name("pack inverse", factor));
    const Seconds arrived =
        carry(last_worker(), costs_.broadcast.time(step.elements, step.tensors),
              Category::kInverseComm, factor_name("broadcast inverse", factor), step.elements);
    if (!looks_ahead_) arrivals_.emplace_back(step.last, arrived);
  }

  // The owner has the inverses: it preconditions, and V leaves straight from the gradients.
  void broadcast_gradients(const ExchangeStep& step) {
    for (std::size_t i = step.first; i <= step.last; i += 2) {
      const int layer = plan_.factors[i].layer;
      compute(worker_of(step.root), layers_[static_cast<std::size_t>(layer)].precondition,
              Category::kPrecondition, layer_name("precondition", layer));
    }
    const int layer = plan_.factors[step.last].layer;
    compute_everywhere(host(), Category::kPrecondition, layer_name("post gradient of", layer));
    carry(last_worker(), costs_.broadcast.time(step.elements, step.tensors), Category::kInverseComm,
          layer_name("broadcast gradient of", layer), step.elements);
  }

  void invert_and_exchange() {
    const bool inverts = plan_.step == StepKind::kFull;
    // As in the published code, Seq-Dist broadcasts only after all inversions.
    const bool inverses_first = plan_.options.placement == PlacementKind::kSequential;
    const std::vector<ExchangeStep> steps = exchange_steps(plan_, model_);
    auto next = steps.begin();
    if (inverts && inverses_first) {
      for (const FactorPlacement& factor : plan_.factors) invert(factor);
    }
    for (std::size_t i = 0; i < plan_.factors.size(); ++i) {
      if (inverts && !inverses_first) invert(plan_.factors[i]);
      if (next == steps.end() || next->last != i) continue;
      if (next->gradients) {
        broadcast_gradients(*next);
      } else {
        broadcast_inverse(*next);
      }
      ++next;
    }
  }

  // In order of arrival, beside the broadcasts that still travel.
  void unpack_inverses() {
    for (const auto& [index, arrival] : arrivals_) {
      const FactorPlacement& factor = plan_.factors[index];
      const Seconds work = host() + costs_.overheads.unpack_per_element *
                                        static_cast<double>(packed_elements(factor.dim));
      const auto label = factor_name("unpack inverse", factor);
      const std::size_t owner = worker_of(*factor.owner);
      for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
        if (worker == owner) continue;
        workers_[worker].clock.wait_until(arrival);
        compute(worker, work, Category::kInverseComp, label);
      }
    }
  }

  void precondition_everywhere() {
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
      if (sends_gradient_[layer]) continue;
      compute_everywhere(layers_[layer].precondition, Category::kPrecondition,
                         layer_name("precondition", static_cast<int>(layer)));
    }
  }

  const Plan& plan_;
  const ModelSpec& model_;
  const CostModel& costs_;
  const SimulationOptions& options_;
  std::vector<LayerCosts> layers_;
  bool has_factors_;
  ComputeStream stream_;
  std::vector<bool> sends_gradient_;
  Channel channel_;
  std::vector<Worker> workers_;
  std::vector<std::size_t> worker_of_rank_;
  std::vector<std::uint32_t> task_names_;
  std::vector<Seconds> message_arrivals_;                  // of factors and gradients, as planned
  std::vector<std::pair<std::size_t, Seconds>> arrivals_;  // factor, when its inverse arrived
  bool looks_ahead_ = false;
  IterationResult result_;
};

}  // namespace

IterationResult simulate(const Plan& plan, const ModelSpec& model, const CostModel& costs,
                         const SimulationOptions& options) {
  for (const auto& [rank, factor] : options.slow) {
    if (rank < 0 || rank >= plan.world) {
      throw ConfigError(
          fmt::format("simulate: slow worker {}:{} does not exist (world={}); use a "
                      "rank from 0 to {} and a factor above 0",
                      rank, factor, plan.world, plan.world - 1));
    }
    if (!(factor > 0) || !std::isfinite(factor)) {
      throw ConfigError(
          fmt::format("simulate: slow worker {} cannot take {} times as long; use a "
                      "finite factor above 0",
                      rank, factor));
    }
  }
  SPDKFAC_CHECK(options.slow_parts.empty() ||
                    options.slow_parts.size() == static_cast<std::size_t>(plan.world),
                "slowness of parts for some ranks");
  if (!(options.jitter >= 0 && options.jitter < 1)) {
    throw ConfigError(
        fmt::format("simulate: jitter={} is out of range; use 0 to below 1", options.jitter));
  }
  SPDKFAC_CHECK(!model.layers.empty(), "a model without layers");
  const CostModel here = costs.for_world(plan.world);
  IterationResult result = Simulator(plan, model, here, options).run();
  result.sent_bytes = bytes_per_worker(plan, model);
  if (options.trace) {
    result.breakdown = breakdown(result.trace, critical_rank(result.trace));
    result.factor_messages = factor_messages(result.trace);
  }
  return result;
}

double bytes_per_worker(const Plan& plan, const ModelSpec& model) {
  const double share = (plan.world - 1.0) / plan.world;
  double elements = 0;
  for (const Message& message : plan.messages) {
    const double rounds = message.route.op == CollectiveOp::kAllReduce ? 2 : 1;
    elements += rounds * static_cast<double>(message.elements);
  }
  for (const ExchangeStep& step : exchange_steps(plan, model)) {
    elements += static_cast<double>(step.elements);
  }
  return elements * share * kBytesPerElement;
}

}  // namespace spdkfac
