// SPDX-License-Identifier: Apache-2.0
#include "stress/plan_run.h"

#include <memory>
#include <utility>

#include <torch/torch.h>

#include "spdkfac/comm/threads.h"
#include "spdkfac/runtime/preconditioner.h"
#include "spdkfac/sim/auto_planner.h"
#include "stress/random_net.h"

namespace spdkfac::stress {
namespace {

// What a run is continued from.
struct Saved {
  at::Tensor parameters;
  KfacState kfac;
};

struct StressBatch {
  at::Tensor images;
  at::Tensor labels;
};

StressBatch batch_of(const PlanCase& one, int rank, std::int64_t step, int pass) {
  const auto place = static_cast<std::uint64_t>((step * 8 + pass) * 16 + rank);
  auto generator = at::detail::createCPUGenerator(one.seed * std::uint64_t{1'000'003} + place);
  const NetSpec& net = one.net;
  const at::Tensor images =
      at::randn({one.examples, net.channels, net.side, net.side}, generator, at::kDouble);
  const at::Tensor labels = at::randint(net.classes, {one.examples}, generator, at::kLong);
  if (one.order == 0) return {images, labels};
  const at::Tensor order = at::randperm(one.examples, at::detail::createCPUGenerator(one.order));
  return {images.index_select(0, order), labels.index_select(0, order)};
}

StressBatch joined_batch(const PlanCase& one, std::int64_t step, int pass) {
  std::vector<at::Tensor> images;
  std::vector<at::Tensor> labels;
  for (int rank = 0; rank < one.world_at(step); ++rank) {
    const StressBatch batch = batch_of(one, rank, step, pass);
    images.push_back(batch.images);
    labels.push_back(batch.labels);
  }
  return {at::cat(images), at::cat(labels)};
}

at::Tensor flat(const StressNet& model) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& parameter : model->parameters()) {
    parts.push_back(parameter.detach().reshape({-1}));
  }
  return at::cat(parts);
}

void set_flat(StressNet& model, const at::Tensor& values) {
  const torch::NoGradGuard no_grad;
  std::int64_t offset = 0;
  for (at::Tensor& parameter : model->parameters()) {
    parameter.copy_(values.narrow(0, offset, parameter.numel()).view(parameter.sizes()));
    offset += parameter.numel();
  }
}

void descend(StressNet& model, double rate) {
  const torch::NoGradGuard no_grad;
  for (at::Tensor& parameter : model->parameters()) parameter.sub_(parameter.grad(), rate);
}

at::Tensor loss_of(StressNet& model, const StressBatch& batch) {
  return torch::nn::functional::cross_entropy(model(batch.images), batch.labels);
}

// One rank of a run.
class Rank {
 public:
  Rank(const PlanCase& one, const Distribution& distribution, const AtMoment& at_moment)
      : one_(one),
        communicator_(distribution.communicator),
        at_moment_(at_moment),
        model_(one.net, one.seed),
        kfac_(*model_, one.kfac, distribution) {
    set_flat(model_, flat(model_) * one.first);
  }

  void load(const Saved& saved) {
    set_flat(model_, saved.parameters);
    kfac_.load(saved.kfac);
  }
  Saved save() { return {flat(model_), kfac_.state().read_all()}; }
  at::Tensor parameters() const { return flat(model_); }
  std::optional<Plan> plan() const { return kfac_.plan(); }

  void step(std::int64_t step) {
    if (one_.discard_before == step) {
      model_->zero_grad();
      loss_of(model_, batch_of(one_, communicator_->rank(), step, 7)).backward();
      kfac_.discard();
    }
    at_moment_(communicator_->rank(), step, Moment::kBegin);
    model_->zero_grad();
    for (int pass = 0; pass < one_.passes; ++pass) {
      const at::Tensor loss =
          loss_of(model_, batch_of(one_, communicator_->rank(), step, pass)) / one_.passes;
      at_moment_(communicator_->rank(), step, Moment::kAfterForward);
      loss.backward();
    }
    at_moment_(communicator_->rank(), step, Moment::kAfterBackward);
    if (!one_.send_gradients) average_gradients();
    if (one_.synchronize) kfac_.synchronize();
    kfac_.step(one_.rate);
    descend(model_, one_.rate);
    at_moment_(communicator_->rank(), step, Moment::kAfterStep);
  }

 private:
  // As DistributedDataParallel does.
  void average_gradients() {
    for (at::Tensor& parameter : model_->parameters()) {
      at::Tensor gradient = parameter.mutable_grad();
      communicator_->all_reduce_async(gradient, "gradient").wait();
      gradient.div_(communicator_->size());
    }
  }

  const PlanCase& one_;
  std::shared_ptr<Communicator> communicator_;
  const AtMoment& at_moment_;
  StressNet model_;
  Preconditioner kfac_;
};

PlanSource source_of(const PlanCase& one, int world, const std::optional<Plan>& followed) {
  if (followed && followed->world == world) return FollowPlan{*followed};
  // The last ranks may be one, to which costs cannot be scaled back from.
  const CostModel costs = one.costs.for_world(world);
  if (one.source != Source::kChanged) return PlanForCosts{costs, one.plan};
  const PlanOptions options = one.plan;
  const auto seed = one.seed;
  const auto planner = [options, costs, world, seed](const ModelSpec& model,
                                                     const RefreshIntervals& intervals,
                                                     StepKind step) {
    return changed_plan(make_best_plan(model, costs, world, options, intervals, step), model, seed);
  };
  return CustomPlanner{planner, options.second_order()};
}

}  // namespace

Trained train_on_threads(const PlanCase& one, const AtMoment& at_moment,
                         const std::optional<Plan>& followed, const CommOptions& options,
                         const AtEnd& at_end) {
  Trained result;
  std::optional<Saved> between;
  const auto part = [&](int world, std::int64_t first, std::int64_t last) {
    std::vector<Saved> saved(static_cast<std::size_t>(world));
    result.ranks.assign(static_cast<std::size_t>(world), {});
    const PlanSource source = source_of(one, world, followed);
    const auto train = [&](const std::shared_ptr<Communicator>& communicator) {
      Distribution distribution;
      distribution.communicator = communicator;
      distribution.plans = source;
      distribution.send_gradients = one.send_gradients;
      distribution.profile_steps = followed ? 0 : one.profile_steps;
      Rank rank(one, distribution, at_moment);
      if (between) rank.load(*between);
      for (std::int64_t step = first; step < last; ++step) rank.step(step);
      const auto index = static_cast<std::size_t>(communicator->rank());
      if (one.save_after == last) saved[index] = rank.save();
      result.ranks[index] = rank.parameters();
      if (index == 0 && first == 0) result.plan = rank.plan();
    };
    run_ranks(
        world,
        [&](const std::shared_ptr<Communicator>& communicator) {
          try {
            train(communicator);
          } catch (...) {
            at_end(communicator->rank(), std::current_exception());
            throw;
          }
          at_end(communicator->rank(), nullptr);
        },
        options);
    between = saved.front();
  };
  if (!one.save_after) {
    part(one.world, 0, one.steps);
  } else {
    part(one.world, 0, *one.save_after);
    part(one.later_world, *one.save_after, one.steps);
  }
  return result;
}

at::Tensor train_on_joined_batches(const PlanCase& one) {
  StressNet model(one.net, one.seed);
  set_flat(model, flat(model) * one.first);
  KfacOptions options = one.kfac;
  options.trace = false;
  Distribution alone;
  alone.plans = MeasureHere{.options = one.plan};
  Preconditioner kfac(*model, options, alone);
  for (std::int64_t step = 0; step < one.steps; ++step) {
    model->zero_grad();
    for (int pass = 0; pass < one.passes; ++pass) {
      (loss_of(model, joined_batch(one, step, pass)) / one.passes).backward();
    }
    kfac.step(one.rate);
    descend(model, one.rate);
  }
  return flat(model);
}

}  // namespace spdkfac::stress
