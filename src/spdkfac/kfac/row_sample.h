// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "spdkfac/kfac/factor.h"

namespace spdkfac::kfac {

// A part of the rows of a call, from which a factor is estimated.
struct RowSample {
  at::Tensor tensor;  // a view where that is possible
  double weight = 1;  // what its products are multiplied with to stand for all rows
};

// Every k-th row of the input of a call or of the gradient of its output; of a convolution every
// k-th example with all its positions. k is rows/most, rounded down, but at most 8, so that no
// factor is made from less than an eighth of a batch. The step decides which row is the first: each
// is as likely as another, so the products are those of all rows on average. `most` = 0: all rows.
RowSample sample_rows(const at::Tensor& tensor, const LayerUse& use, std::int64_t most,
                      std::int64_t step);

}  // namespace spdkfac::kfac
