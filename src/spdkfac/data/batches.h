// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "spdkfac/data/dataset.h"

namespace spdkfac::data {

struct BatchOptions {
  std::int64_t batch = 1;  // examples per worker
  bool shuffle = false;
  bool augment = false;
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  int rank = 0;
  int world = 1;
  std::int64_t first = 0;  // examples of the epoch that are taken already
  at::Device device = at::kCPU;
};

// The batches of one worker in one epoch. All workers together take batch·world examples at a time,
// in an order that depends on seed and epoch only, so P workers see what one worker with P times
// the batch would; no example goes to two of them, and all have the same number of batches.
// The training split drops its last examples when they do not fill a batch of every worker. The
// test split drops none: the last batches are smaller, and may be empty when there are more workers
// than examples.
class Batches {
 public:
  Batches(Dataset data, const BatchOptions& options);

  std::int64_t size() const { return size_; }
  // Examples in all batches of this worker.
  std::int64_t examples() const;
  // Batch k, normalised; any k costs the same, so a run can resume anywhere.
  Batch at(std::int64_t k) const;
  // Which examples batch k holds.
  std::vector<std::int64_t> indices(std::int64_t k) const;

 private:
  struct Range {
    std::int64_t begin;
    std::int64_t end;
  };
  Range range(std::int64_t k) const;

  Dataset data_;
  BatchOptions options_;
  std::int64_t size_ = 0;
  std::vector<std::int64_t> order_;  // empty: as stored
  at::Tensor mean_;                  // of the stored values, [1, C, 1, 1]
  at::Tensor deviation_;
};

}  // namespace spdkfac::data
