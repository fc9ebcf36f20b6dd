// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <utility>
#include <vector>

#include "spdkfac/runtime/factor_id.h"

namespace spdkfac::runtime {

// Batches of factors that have been refreshed together, the latest first. When another set of
// factors is asked for, old ones go: each factor stays in at most kBatchesOfFactor batches, so that
// their memory is bounded however the sets change. A batch that a recorded graph uses stays.
template <class Batch>
class RecentBatches {
 public:
  static constexpr int kBatchesOfFactor = 2;

  // The batch of these factors; made where it is not known, or its tensors are now elsewhere.
  Batch& get(const std::vector<FactorId>& ids, std::vector<const void*> places, bool recorded,
             const std::function<Batch()>& make) {
    for (auto known = entries_.begin(); known != entries_.end(); ++known) {
      if (known->ids != ids) continue;
      entries_.splice(entries_.begin(), entries_, known);
      if (known->places != places) {
        known->batch = make();
        known->places = std::move(places);
      }
      known->recorded |= recorded;
      return known->batch;
    }
    drop_old(ids);
    entries_.push_front({ids, std::move(places), recorded, make()});
    return entries_.front().batch;
  }

  std::size_t size() const { return entries_.size(); }
  template <class Visit>
  void each(const Visit& visit) const {
    for (const Entry& entry : entries_) visit(entry.batch);
  }

 private:
  struct Entry {
    std::vector<FactorId> ids;
    std::vector<const void*> places;
    bool recorded;
    Batch batch;
  };

  void drop_old(const std::vector<FactorId>& coming) {
    std::map<FactorId, int> uses;
    for (const FactorId id : coming) ++uses[id];
    for (auto entry = entries_.begin(); entry != entries_.end();) {
      bool fits = true;
      for (const FactorId id : entry->ids) fits = fits && uses[id] < kBatchesOfFactor;
      if (!fits && !entry->recorded) {
        entry = entries_.erase(entry);
        continue;
      }
      for (const FactorId id : entry->ids) ++uses[id];
      ++entry;
    }
  }

  std::list<Entry> entries_;
};

}  // namespace spdkfac::runtime
