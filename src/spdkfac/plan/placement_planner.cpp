// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/placement_planner.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "spdkfac/base/check.h"

namespace spdkfac::plan {
namespace {

// Block of each item when every block is filled up to `limit`; nullopt if `blocks` do not suffice.
std::optional<std::vector<int>> fill_blocks(std::span<const PlacementItem> items, double limit,
                                            int blocks) {
  std::vector<int> block_of(items.size(), 0);
  int block = 0;
  double load = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const double weight = items[i].replicate ? 0 : items[i].weight;
    if (weight > limit) return std::nullopt;
    if (load + weight > limit) {
      load = 0;
      if (++block == blocks) return std::nullopt;
    }
    load += weight;
    block_of[i] = block;
  }
  return block_of;
}

}  // namespace

Owners place_sequential(std::size_t items, int world) {
  SPDKFAC_CHECK(world >= 1, "no ranks");
  Owners owners(items);
  for (std::size_t i = 0; i < items; ++i) {
    owners[i] = static_cast<int>(i % static_cast<std::size_t>(world));
  }
  return owners;
}

Owners place_heaviest_first(std::span<const PlacementItem> items, int world, int columns) {
  SPDKFAC_CHECK(world >= 1 && columns >= 1 && world % columns == 0, "no ranks");
  std::vector<std::size_t> order(items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return items[a].weight > items[b].weight; });
  using Load = std::pair<double, int>;  // load, rank or column
  using LeastFirst = std::priority_queue<Load, std::vector<Load>, std::greater<>>;
  LeastFirst grid;
  std::vector<LeastFirst> ranks(static_cast<std::size_t>(columns));
  for (int rank = 0; rank < world; ++rank) {
    if (rank < columns) grid.emplace(0.0, rank);
    ranks[static_cast<std::size_t>(rank % columns)].emplace(0.0, rank);
  }
  Owners owners(items.size());
  const auto add = [](LeastFirst& list, double weight) {
    const auto [load, index] = list.top();
    list.pop();
    list.emplace(load + weight, index);
    return index;
  };
  for (const std::size_t i : order) {
    if (items[i].replicate) continue;
    const int column = add(grid, items[i].weight);
    owners[i] = add(ranks[static_cast<std::size_t>(column)], items[i].weight);
  }
  return owners;
}

Owners place_blocks(std::span<const PlacementItem> items, int world, int blocks) {
  SPDKFAC_CHECK(world >= 1 && blocks >= 1, "no ranks");
  blocks = std::min(blocks, world);
  double low = 0;
  double high = 0;
  for (const PlacementItem& item : items) {
    if (item.replicate) continue;
    low = std::max(low, item.weight);
    high += item.weight;
  }
  auto best = fill_blocks(items, high, blocks);
  // Bisection down to rounding: the limit that still fits bounds the heaviest block.
  for (int round = 0; round < 60 && low < high; ++round) {
    const double middle = low + (high - low) / 2;
    if (auto fits = fill_blocks(items, middle, blocks)) {
      best = std::move(fits);
      high = middle;
    } else {
      low = middle;
    }
  }
  SPDKFAC_CHECK(best.has_value(), "one block holds everything");
  const int used = items.empty() ? 1 : best->back() + 1;
  Owners owners(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!items[i].replicate) {
      owners[i] = static_cast<int>(std::int64_t{(*best)[i]} * world / used);
    }
  }
  return owners;
}

}  // namespace spdkfac::plan
