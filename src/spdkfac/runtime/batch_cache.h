// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "spdkfac/kfac/inverse_batch.h"
#include "spdkfac/kfac/precondition_batch.h"
#include "spdkfac/runtime/factor_id.h"
#include "spdkfac/runtime/recent_batches.h"

namespace spdkfac::runtime {

// Batches of factors and of gradients that go through a GPU together. Each is made when it is first
// asked for, and again when its tensors have moved; old ones go when sets of factors change.
class BatchCache {
 public:
  BatchCache(Precision precision, const kfac::GraftRule& graft)
      : precision_(precision), graft_(graft) {}

  kfac::InverseBatch& inverses(const std::vector<FactorId>& ids,
                               const std::vector<kfac::InverseBatch::Task>& tasks);
  kfac::PreconditionBatch& gradients(const std::vector<std::size_t>& layers,
                                     const std::vector<kfac::PreconditionBatch::Task>& tasks);

  Bytes buffer_bytes() const;

 private:
  struct Gradients {
    std::vector<std::size_t> layers;
    std::vector<const void*> places;
    kfac::PreconditionBatch batch;
  };

  Precision precision_;
  kfac::GraftRule graft_;
  RecentBatches<kfac::InverseBatch> inverses_;
  std::optional<Gradients> gradients_;
};

}  // namespace spdkfac::runtime
