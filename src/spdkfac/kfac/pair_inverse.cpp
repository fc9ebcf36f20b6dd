// SPDX-License-Identifier: Apache-2.0
// Inverses of many blocks of two rows, such as those of norms: element by element on any device.
#include <ATen/ATen.h>

#include "spdkfac/kfac/inverse.h"
#include "spdkfac/kfac/pivots.h"

namespace spdkfac::kfac {
namespace {

// A pivot by the rules of safe_pivot(); `raised` gains those that were not above rounding.
at::Tensor safe_pivots(const at::Tensor& pivot, const at::Tensor& diagonal,
                       const at::Tensor& largest, double rounding, at::Tensor& raised) {
  const at::Tensor size = diagonal.abs();
  const at::Tensor fine = pivot > 2 * rounding * size;
  raised = raised.logical_or(fine.logical_not());
  const at::Tensor instead = at::where(size > 0, size, largest);
  return at::where(fine, pivot, at::where(-pivot > size, -pivot, instead));
}

}  // namespace

bool by_elements(const FactorShape& shape) {
  return shape.is_diagonal() || (shape.is_split() && shape.dim() == 2);
}

void refresh_pairs(const at::Tensor& factor, const at::Tensor& damping, Inverse& inverse) {
  const bool wide = factor.scalar_type() == at::kDouble;
  const double rounding = wide ? kRoundingUnit<double> : kRoundingUnit<float>;
  const at::Tensor first = factor.select(2, 0).select(1, 0);
  const at::Tensor second = factor.select(2, 1).select(1, 1);
  const at::Tensor cross = factor.select(2, 1).select(1, 0);
  const at::Tensor least = 4 * rounding * (first.abs() + second.abs());
  const at::Tensor added =
      at::maximum(for_matrices(damping, inverse.shape).to(factor.scalar_type()), least);
  const at::Tensor a = first + added;
  const at::Tensor c = second + added;
  at::Tensor largest = at::maximum(a.abs(), c.abs());
  largest = at::where(largest > 0, largest, at::ones_like(largest));
  at::Tensor raised = at::zeros_like(a, at::kBool);
  const at::Tensor p = safe_pivots(a, a, largest, rounding, raised);
  const at::Tensor down = cross / p;
  const at::Tensor q = safe_pivots(c - down * cross, c, largest, rounding, raised);

  const at::Tensor finite = (a + c + cross).isfinite();
  const at::Tensor zero = first.eq(0).logical_and(second.eq(0));
  const at::Tensor of_group =
      for_matrices(zero.view({inverse.shape.groups, -1}).all(1), inverse.shape);
  const at::Tensor made = finite.logical_and(of_group.logical_not());
  const auto put = [&](std::int64_t row, std::int64_t column, const at::Tensor& value) {
    const at::Tensor to = inverse.value.select(2, column).select(1, row);
    to.copy_(at::where(made, value, to));
  };
  const at::Tensor outside = -down / q;
  put(0, 0, p.reciprocal() - outside * down);
  put(0, 1, outside);
  put(1, 0, outside);
  put(1, 1, q.reciprocal());
  inverse.failures.copy_(raised.logical_and(made));
  inverse.kept.copy_(finite.logical_not());
}

}  // namespace spdkfac::kfac
