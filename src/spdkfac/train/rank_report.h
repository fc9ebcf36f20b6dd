// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "spdkfac/base/json.h"
#include "spdkfac/runtime/kfac_counters.h"
#include "spdkfac/train/ranks.h"

namespace spdkfac::train {

// What one rank holds and sends.
struct RankFigures {
  KfacMemory memory;
  double sent_per_step = 0;  // bytes, on average
};

// Of all ranks; each calls it with its own.
std::vector<RankFigures> gather(const Ranks& ranks, const RankFigures& mine);

std::string ranks_text(const std::vector<RankFigures>& figures);
Json ranks_json(const std::vector<RankFigures>& figures);

}  // namespace spdkfac::train
