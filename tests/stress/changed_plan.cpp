// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "spdkfac/base/error.h"
#include "stress/plan_run.h"
#include "support/random.h"

namespace spdkfac::stress {
namespace {

using support::Random;

constexpr int kChanges = 12;

std::size_t index_below(Random& random, std::size_t size) {
  return static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(size) - 1));
}

void count_elements(Message& message, const ModelSpec& model) {
  message.elements = 0;
  for (const Member& member : message.members) {
    const LayerSpec& layer = model.layers[static_cast<std::size_t>(member.layer)];
    message.elements += member_size(layer, member.kind).elements;
  }
}

void split(Plan& plan, const ModelSpec& model, Random& random) {
  const std::size_t index = index_below(random, plan.messages.size());
  Message& message = plan.messages[index];
  if (message.members.size() < 2) return;
  const std::size_t at = 1 + index_below(random, message.members.size() - 1);
  Message rest = message;
  rest.members.erase(rest.members.begin(), rest.members.begin() + static_cast<std::ptrdiff_t>(at));
  message.members.resize(at);
  count_elements(message, model);
  count_elements(rest, model);
  plan.messages.insert(plan.messages.begin() + static_cast<std::ptrdiff_t>(index) + 1,
                       std::move(rest));
}

void merge(Plan& plan, const ModelSpec& model, Random& random) {
  if (plan.messages.size() < 2) return;
  const std::size_t index = index_below(random, plan.messages.size() - 1);
  Message& first = plan.messages[index];
  const Message& second = plan.messages[index + 1];
  if (first.route != second.route) return;
  first.members.insert(first.members.end(), second.members.begin(), second.members.end());
  count_elements(first, model);
  plan.messages.erase(plan.messages.begin() + static_cast<std::ptrdiff_t>(index) + 1);
}

template <class List>
void swap_two(List& list, Random& random) {
  if (list.size() < 2) return;
  std::swap(list[index_below(random, list.size())], list[index_below(random, list.size())]);
}

void change(Plan& plan, const ModelSpec& model, Random& random) {
  switch (random.integer(0, 5)) {
    case 0:
      return split(plan, model, random);
    case 1:
      return merge(plan, model, random);
    case 2:
      return swap_two(plan.messages, random);
    case 3:
      return swap_two(plan.messages[index_below(random, plan.messages.size())].members, random);
    case 4:
      return swap_two(plan.placements, random);
    default:  // a plan that lacks something
      plan.messages.erase(plan.messages.begin() +
                          static_cast<std::ptrdiff_t>(index_below(random, plan.messages.size())));
  }
}

}  // namespace

Plan changed_plan(Plan plan, const ModelSpec& model, std::uint32_t seed) {
  if (plan.messages.empty()) return plan;
  Random random(seed);
  // The first choice, so that the plans of all kinds of steps agree on owners.
  plan =
      with_ranks_swapped(std::move(plan), 0, static_cast<int>(random.integer(0, plan.world - 1)));
  for (int i = 0; i < kChanges; ++i) {
    Plan next = plan;
    change(next, model, random);
    try {
      validate_against(next, model, "changed");
      plan = std::move(next);
    } catch (const ConfigError&) {  // not a plan
    }
  }
  return plan;
}

}  // namespace spdkfac::stress
