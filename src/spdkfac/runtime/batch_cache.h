// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "spdkfac/kfac/inverse_batch.h"
#include "spdkfac/kfac/precondition_batch.h"
#include "spdkfac/runtime/factor_id.h"

namespace spdkfac {

// Batches of factors and of gradients that go through a GPU together. Each is made when it is first
// asked for, and again when its tensors have moved.
class BatchCache {
 public:
  explicit BatchCache(Precision precision) : precision_(precision) {}

  InverseBatch& inverses(const std::vector<FactorId>& ids,
                         const std::vector<InverseBatch::Task>& tasks);
  PreconditionBatch& gradients(const std::vector<std::size_t>& layers,
                               const std::vector<PreconditionBatch::Task>& tasks);

  Bytes buffer_bytes() const;

 private:
  struct Inverses {
    std::vector<FactorId> ids;
    std::vector<const void*> places;
    InverseBatch batch;
  };
  struct Gradients {
    std::vector<std::size_t> layers;
    std::vector<const void*> places;
    PreconditionBatch batch;
  };

  Precision precision_;
  std::vector<Inverses> inverses_;
  std::optional<Gradients> gradients_;
};

}  // namespace spdkfac
