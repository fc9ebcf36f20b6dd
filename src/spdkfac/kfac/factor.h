// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spdkfac/base/factor_side.h"
#include "spdkfac/base/units.h"
#include "spdkfac/kfac/conv_call.h"
#include "spdkfac/kfac/modes.h"

namespace spdkfac::kfac {

// A call of a table: its input are row numbers, and ã has a single 1.
struct Lookup {
  std::int64_t padding = -1;  // a row that never counts
  // Its rows are no examples of the batch as far as their shape tells, as positions 0 to T.
  bool own_rows = false;
  bool operator==(const Lookup&) const = default;
};

// A layer's call seen as numbers: what scaling and the shape of factors depend on. Without a
// geometry the layer is Linear: [leading dimensions…, features].
struct LayerUse {
  std::optional<ConvCall> conv;
  bool bias = false;
  std::int64_t examples = 0;
  std::int64_t positions = 1;
  std::optional<Lookup> lookup = std::nullopt;
  bool weight = true;  // otherwise the bias alone is trained, and ã is 1
  // Its rows are gradients of parameters (unit_rows.h), which are added up for each example; ã
  // is 1.
  bool by_example = false;
  bool time_first = false;  // in doubt the examples are dimension 1 of the rows

  std::int64_t groups() const { return conv ? conv->groups : 1; }
  std::int64_t rows() const { return examples * positions; }
  // The same rows as those of another number of examples, which divides them.
  LayerUse of_examples(std::int64_t count) const {
    LayerUse use = *this;
    use.examples = count;
    use.positions = rows() / count;
    return use;
  }
};
// Examples and positions as the shape of a call's input suggests them; a shape that cannot be is an
// InternalError. The batch may know better: of_examples().
LayerUse layer_use(const at::Tensor& input, const std::optional<ConvCall>& conv, bool bias);

// The same of a table for indices of any shape; `padding` below 0: none.
LayerUse lookup_use(const at::Tensor& indices, std::int64_t padding);

// A factor is the product of a part that depends on the positions of a call and a part that depends
// on all examples of a step: those of the factor, and those whose losses make the gradient of which
// G has the products (its `terms`).
double position_scale(Convention convention, FactorSide side, const LayerUse& use);
struct ExampleCount {
  std::int64_t examples = 0;
  std::int64_t terms = 0;
  LossReduction reduction = LossReduction::kMean;
};
double example_scale(Convention convention, FactorSide side, const ExampleCount& count);

// Adds scale·Σããᵀ over examples and positions to `sum`, or overwrites it, which is faster. The sum
// is [groups, d_a, d_a], or has blocks of that or its diagonal (FactorShape). Only the upper
// triangles are meant: below them anything may be written, and padding must be zero before. ã is a
// patch in (channel, depth, row, column) order, then 1 with a bias. At most `patch_memory` of
// patches is held at once (at least one output row of one example).
void add_input_products(const at::Tensor& input, const LayerUse& use, double scale,
                        Bytes patch_memory, at::Tensor& sum, bool overwrite = false);

// Likewise scale·Σ∇∇ᵀ of the gradient of a layer's output.
void add_gradient_products(const at::Tensor& gradient, const LayerUse& use, double scale,
                           Bytes patch_memory, at::Tensor& sum, bool overwrite = false);

// The whole factor of one call, both triangles, [groups, d, d]. `gradient` is that of the loss
// averaged over the examples.
at::Tensor input_factor(const at::Tensor& input, const LayerUse& use,
                        Convention convention = Convention::kKfc,
                        Bytes patch_memory = kDefaultPatchMemory);
at::Tensor gradient_factor(const at::Tensor& gradient, const LayerUse& use,
                           Convention convention = Convention::kKfc,
                           Bytes patch_memory = kDefaultPatchMemory);

}  // namespace spdkfac::kfac
