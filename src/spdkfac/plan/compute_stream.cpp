// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/compute_stream.h"

#include <algorithm>

namespace spdkfac::plan {

ComputeStream compute_stream(const ModelSpec& model, std::span<const LayerCosts> layers,
                             const CostModel& costs, FactorSchedule schedule, bool with_factors,
                             bool local_factors) {
  const int count = static_cast<int>(model.layers.size());
  const Overheads& overheads = costs.overheads;
  const bool travels = costs.world > 1;
  const bool bulk = schedule == FactorSchedule::kBulk;
  const bool in_passes = with_factors && !bulk;
  const bool around = costs.task_order == TaskOrder::kFactorsAroundPasses;
  const auto layer = [&](int l) -> const LayerSpec& {
    return model.layers[static_cast<std::size_t>(l)];
  };
  const auto cost = [&](int l) -> const LayerCosts& { return layers[static_cast<std::size_t>(l)]; };
  const auto factor_overhead = [&](int l, FactorSide side) {
    if (!travels || local_factors) return Seconds(0);
    return overheads.host_per_tensor +
           overheads.pack_per_element * static_cast<double>(layer(l).shape(side).packed());
  };

  ComputeStream stream;
  std::vector<StreamTask>& tasks = stream.tasks;
  stream.release_gradient.resize(model.layers.size());
  if (with_factors) {
    stream.release_a.resize(model.layers.size());
    stream.release_g.resize(model.layers.size());
  }
  const auto release = [&](std::vector<std::size_t>& list, int l) {
    list[static_cast<std::size_t>(l)] = tasks.size() - 1;
  };

  const auto add_factor_a = [&](int l) {
    if (!in_passes) return;
    tasks.push_back({TaskKind::kFactorA, l, cost(l).factor_a + factor_overhead(l, FactorSide::kA)});
    release(stream.release_a, l);
  };
  const auto add_factor_g = [&](int l) {
    if (!in_passes) return;
    tasks.push_back({TaskKind::kFactorG, l, cost(l).factor_g + factor_overhead(l, FactorSide::kG)});
    release(stream.release_g, l);
  };

  for (int l = 0; l < count; ++l) {
    if (around) add_factor_a(l);
    tasks.push_back({TaskKind::kForward, l, cost(l).forward});
    if (!around) add_factor_a(l);
  }
  if (in_passes && schedule == FactorSchedule::kNaive) {
    std::fill(stream.release_a.begin(), stream.release_a.end(), tasks.size() - 1);
  }
  for (int l = count - 1; l >= 0; --l) {
    const double tensors = static_cast<double>(layer(l).gradients.size());
    const Seconds host = travels ? overheads.host_per_tensor * tensors : Seconds(0);
    if (!around) add_factor_g(l);
    tasks.push_back({TaskKind::kBackward, l, cost(l).backward + host});
    release(stream.release_gradient, l);
    if (around) add_factor_g(l);
  }
  if (in_passes && schedule == FactorSchedule::kNaive) {
    std::fill(stream.release_g.begin(), stream.release_g.end(), tasks.size() - 1);
  }
  stream.join = tasks.size();
  if (with_factors && bulk) {
    for (int l = 0; l < count; ++l) tasks.push_back({TaskKind::kFactorA, l, cost(l).factor_a});
    for (int l = count - 1; l >= 0; --l) {
      tasks.push_back({TaskKind::kFactorG, l, cost(l).factor_g});
    }
    std::fill(stream.release_a.begin(), stream.release_a.end(), tasks.size() - 1);
    std::fill(stream.release_g.begin(), stream.release_g.end(), tasks.size() - 1);
  }
  return stream;
}

std::vector<Seconds> end_times(const ComputeStream& stream, Seconds join_time) {
  std::vector<Seconds> ends;
  ends.reserve(stream.tasks.size());
  Seconds now(0);
  for (std::size_t i = 0; i < stream.tasks.size(); ++i) {
    if (i == stream.join) now = std::max(now, join_time);
    now += stream.tasks[i].duration;
    ends.push_back(now);
  }
  return ends;
}

Category category_of(TaskKind kind) {
  return is_factor(kind) ? Category::kFactorComp : Category::kForwardBackward;
}

Category category_of(const Message& message, const ModelSpec& model) {
  std::int64_t gradient = 0;
  for (const Member& member : message.members) {
    if (member.kind != TensorKind::kGradient) continue;
    gradient +=
        member_size(model.layers[static_cast<std::size_t>(member.layer)], member.kind).elements;
  }
  return 2 * gradient > message.elements ? Category::kGradientComm : Category::kFactorComm;
}

}  // namespace spdkfac::plan
