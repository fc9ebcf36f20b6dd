// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spdkfac/base/units.h"
#include "spdkfac/kfac/inverse.h"
#include "spdkfac/kfac/precision.h"

namespace spdkfac::kfac {

// The inverses of many factors on a GPU, refreshed together: factors of about the same dimension go
// through the recursion of block_inverse.h in one batch, batches side by side on a few streams, and
// after the first time all of it is replayed as one CUDA graph. Products are fp32, or, with kTf32,
// large ones are split (cuda/split_product.h), which is about as exact. Nothing waits for the host,
// and what refresh_inverse() says of bad factors holds. Factors and inverses must stay where they
// are.
class InverseBatch {
 public:
  struct Task {
    at::Tensor factor;  // [groups, d, d], contiguous; its upper triangles are read
    Inverse* inverse;
  };
  // From now on the tasks' failures and kept are parts of failures() and kept().
  InverseBatch(const std::vector<Task>& tasks, Precision precision);
  ~InverseBatch();
  InverseBatch(InverseBatch&&) noexcept;
  InverseBatch& operator=(InverseBatch&&) noexcept;

  // `damping` has one value for each group of each task, in order.
  void refresh(const at::Tensor& damping);

  const at::Tensor& failures() const;  // int32, one for each group of each task
  const at::Tensor& kept() const;      // bool
  Bytes buffer_bytes() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spdkfac::kfac
