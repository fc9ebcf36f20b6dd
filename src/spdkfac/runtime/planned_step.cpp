// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/planned_step.h"

#include <algorithm>

#include <fmt/format.h>

#include "spdkfac/base/check.h"
#include "spdkfac/plan/compute_stream.h"

namespace spdkfac::runtime {
namespace {

// Messages begin on a line of the cache.
constexpr std::int64_t kAlignment = 16;

std::int64_t aligned(std::int64_t elements) {
  return (elements + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

PlannedStep::PlannedStep(Plan plan, const ModelSpec& model, LayerOrder order)
    : plan_(std::move(plan)), order_(std::move(order)) {
  lay_out_messages(model);
  lay_out_broadcasts(model);
}

void PlannedStep::lay_out_messages(const ModelSpec& model) {
  for (const Message& message : plan_.messages) {
    std::int64_t inside = buffer_elements_;
    std::int64_t tensors = 0;
    for (const Member& member : message.members) {
      const MemberSize size =
          member_size(model.layers[static_cast<std::size_t>(member.layer)], member.kind);
      const std::int64_t elements = size.elements;
      tensors += size.tensors;
      const std::size_t index = places_.size();
      places_[key(member)] = {index, messages_.size(), {inside, elements}};
      inside += elements;
    }
    std::int64_t sent = message.elements;
    for (const Member& member : message.members) {
      if (is_factor(member)) places_[key(member)].count = buffer_elements_ + sent++;
    }
    SPDKFAC_CHECK(inside - buffer_elements_ == message.elements,
                  "a message's members differ from its size");
    messages_.push_back({describe(message),
                         plan::category_of(message, model),
                         {buffer_elements_, sent},
                         message.elements,
                         tensors});
    buffer_elements_ += aligned(sent);
  }
}

void PlannedStep::lay_out_broadcasts(const ModelSpec& model) {
  // On one rank nothing has an owner, and layers may be such that no table holds them.
  if (plan_.world > 1) broadcasts_ = result_broadcasts(plan_, model);
  for (const ResultBroadcast& broadcast : broadcasts_) {
    const FactorPlacement& last = plan_.placements[broadcast.last];
    const bool basis = keeps_basis(plan_.options.solver);
    const char* what = last.side == FactorSide::kA ? (basis ? "basis A" : "inverse A")
                                                   : (basis ? "basis G" : "inverse G");
    Outgoing outgoing{
        .name = fmt::format("broadcast {} {}", broadcast.gradients ? "gradient of" : what,
                            model.layers[static_cast<std::size_t>(last.layer)].name),
        .category = Category::kInverseComm,
        .range = {buffer_elements_, broadcast.elements},
        .elements = broadcast.elements,
        .tensors = broadcast.tensors};
    if (broadcast.gradients || keeps_basis(plan_.options.solver)) {
      buffer_elements_ += broadcast.elements;
    } else {
      outgoing.range = place(factor_member(last.layer, last.side)).range;
    }
    outgoing_broadcasts_.push_back(std::move(outgoing));
  }
}

const PlannedStep::Place& PlannedStep::place(const Member& member) const {
  const auto found = places_.find(key(member));
  SPDKFAC_CHECK(found != places_.end(), "a tensor that the plan does not send");
  return found->second;
}

std::vector<int> layers_of(const ResultBroadcast& broadcast, const Plan& plan) {
  std::vector<int> seen;
  std::vector<int> layers;
  for (std::size_t i = broadcast.first; i <= broadcast.last; ++i) {
    const int layer = plan.placements[i].layer;
    const bool second = std::find(seen.begin(), seen.end(), layer) != seen.end();
    (second ? layers : seen).push_back(layer);
  }
  return layers;
}

}  // namespace spdkfac::runtime
