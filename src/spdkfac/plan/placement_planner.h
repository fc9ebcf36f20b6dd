// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace spdkfac::plan {

// One tensor (or layer) to be inverted somewhere.
struct PlacementItem {
  double weight = 0;       // what balances: dimension, its square, or modelled seconds
  bool replicate = false;  // NCT: inverted on every rank
};

// Owner of each item; nullopt: every rank.
using Owners = std::vector<std::optional<int>>;

// The i-th item goes to rank i mod world; nothing is replicated (the paper's Seq-Dist).
Owners place_sequential(std::size_t items, int world);

// Heaviest first onto the least loaded rank; ties: lowest rank, input order. With dimensions as
// weights this is Algorithm 1 of the paper, with seconds it is longest processing time first.
// Replicated items load every rank alike and so never change who is least loaded.
// With `columns`, first the column (of rank r: r mod columns) whose ranks together have least, then
// the least loaded rank in it, as KAISA does it.
Owners place_heaviest_first(std::span<const PlacementItem> items, int world, int columns = 1);

// Consecutive items in at most `blocks` blocks such that the heaviest block is as light as
// possible; block b of n goes to rank b·world/n, so that owners spread over the nodes.
// Replicated items weigh nothing and end no block.
Owners place_blocks(std::span<const PlacementItem> items, int world, int blocks);

}  // namespace spdkfac::plan
