// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/inverse.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <c10/core/GradMode.h>

#include "spdkfac/base/check.h"
#include "spdkfac/kfac/aligned.h"
#include "spdkfac/kfac/cuda/average_cuda.h"
#include "spdkfac/kfac/inverse_batch.h"
#include "spdkfac/kfac/pivots.h"
#include "spdkfac/kfac/raised_inverse.h"
#include "spdkfac/kfac/symmetric.h"

namespace spdkfac::kfac {
namespace {

// Adds damping to a factor's diagonal while it lives and puts the old diagonal back, bit for bit:
// cheaper than a damped copy of the whole.
class DampedDiagonal {
 public:
  DampedDiagonal(const at::Tensor& factor, const at::Tensor& damping)
      : diagonal_(factor.diagonal(0, -2, -1)), original_(diagonal_.clone()) {
    diagonal_.add_(damping.unsqueeze(-1));
  }
  ~DampedDiagonal() { diagonal_.copy_(original_); }
  DampedDiagonal(const DampedDiagonal&) = delete;
  DampedDiagonal& operator=(const DampedDiagonal&) = delete;

 private:
  at::Tensor diagonal_;
  at::Tensor original_;
};

struct Factorisation {
  at::Tensor lower;  // in columns, as LAPACK and cuSOLVER want it
  at::Tensor info;
};

// Transposed, the upper triangle in rows is the lower one in columns, and nothing is transposed in
// memory.
Factorisation factorise(const at::Tensor& factor, const at::Tensor& damping) {
  const DampedDiagonal damped(factor, damping);
  auto [lower, info] = at::linalg_cholesky_ex(factor.mT(), /*upper=*/false);
  return {lower, info};
}

// Whether each matrix's factorisation went well; an infinite factor can pass unseen by info.
at::Tensor succeeded(const Factorisation& cholesky) {
  return cholesky.info.eq(0).logical_and_(cholesky.lower.diagonal(0, -2, -1).isfinite().all(-1));
}

// What is added to the diagonal of each matrix.
at::Tensor used_damping(const at::Tensor& factor, const at::Tensor& damping) {
  const at::Tensor trace = factor.diagonal(0, 1, 2).abs().sum(-1);
  at::Tensor used = damping.reshape({-1}).to(factor.scalar_type()).clone();
  AT_DISPATCH_FLOATING_TYPES(factor.scalar_type(), "used_damping", [&] {
    for (std::int64_t matrix = 0; matrix < used.numel(); ++matrix) {
      scalar_t& value = used.mutable_data_ptr<scalar_t>()[matrix];
      value = damping_above_rounding(value, trace.const_data_ptr<scalar_t>()[matrix]);
    }
  });
  return used;
}

// A matrix that Cholesky has refused.
void raise_matrix(const at::Tensor& factor, const at::Tensor& damping, Inverse& inverse,
                  std::int64_t index) {
  at::Tensor matrix = factor.clone();
  matrix.diagonal().add_(damping);
  if (invert_with_raised_pivots(matrix) == kPivotsNotFinite) {
    inverse.kept[index] = true;
    return;
  }
  mirror_upper(matrix);
  inverse.value[index].copy_(matrix);
  inverse.failures[index] = 1;
}

void refresh_on_cpu(const at::Tensor& factor, const at::Tensor& damping, Inverse& inverse) {
  const at::Tensor used = used_damping(factor, for_matrices(damping, inverse.shape));
  const Factorisation cholesky = factorise(factor, used);
  const at::Tensor good = succeeded(cholesky);
  const at::Tensor zero = in_zero_group(factor, inverse.shape);
  inverse.failures.zero_();
  inverse.kept.zero_();
  if (good.logical_and(zero.logical_not()).all().item<bool>()) {
    // In columns it is computed in place; being symmetric it is the same in rows.
    at::Tensor in_columns = inverse.value.mT();
    at::cholesky_inverse_out(in_columns, cholesky.lower);
    return;
  }
  for (std::int64_t matrix = 0; matrix < factor.size(0); ++matrix) {
    if (zero[matrix].item<bool>()) continue;
    if (good[matrix].item<bool>()) {
      inverse.value[matrix].copy_(at::cholesky_inverse(cholesky.lower[matrix]));
    } else {
      raise_matrix(factor[matrix], used[matrix], inverse, matrix);
    }
  }
}

// damping_above_rounding() for many at once.
at::Tensor raised(const at::Tensor& damping, const at::Tensor& trace) {
  const bool wide = trace.scalar_type() == at::kDouble;
  const double unit = wide ? kRoundingUnit<double> : kRoundingUnit<float>;
  const double least = wide ? kLeastDamping<double> : kLeastDamping<float>;
  const at::Tensor used = at::maximum(damping.to(trace.scalar_type()), 4 * unit * trace);
  return at::where(used > 0, used.clamp_min(least), used);
}

FactorShape whole(const at::Tensor& factor) { return {factor.size(-1), factor.size(0)}; }

// tr/d of each group, with the d of the factor, not that of padded blocks.
at::Tensor mean_of(const ShapedFactor& factor) {
  const auto& [values, shape] = factor;
  const at::Tensor diagonal = values.diagonal(0, 1, 2);
  if (!shape.is_split()) return diagonal.mean(-1);
  return diagonal.reshape({shape.groups, -1}).sum(1) / static_cast<double>(shape.size);
}

}  // namespace

at::Tensor mean_diagonal(const ShapedFactor& factor) { return diagonal_means({factor}); }

at::Tensor diagonal_means(const std::vector<ShapedFactor>& factors) {
  std::vector<at::Tensor> means(factors.size());
  std::vector<at::Tensor> together;  // that one kernel takes
  std::vector<std::int64_t> groups;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    if (factors[i].values.is_cuda() && !factors[i].shape.is_split()) {
      together.push_back(factors[i].values);
      groups.push_back(factors[i].shape.groups);
    } else {
      means[i] = mean_of(factors[i]);
    }
  }
  if (together.empty()) return at::cat(means);
  const at::Tensor at_once = diagonal_means_cuda(together);
  if (together.size() == factors.size()) return at_once;
  std::vector<at::Tensor> parts = at_once.split_with_sizes(groups);
  auto next = parts.begin();
  for (at::Tensor& one : means) {
    if (!one.defined()) one = *next++;
  }
  return at::cat(means);
}

at::Tensor for_matrices(const at::Tensor& of_groups, const FactorShape& shape) {
  const at::Tensor values = of_groups.reshape({shape.groups});
  if (!shape.is_split()) return values;
  return values.unsqueeze(1).expand({shape.groups, shape.blocks}).reshape({-1});
}

at::Tensor in_zero_group(const at::Tensor& factor, const FactorShape& shape) {
  const at::Tensor zero = factor.diagonal(0, 1, 2).eq(0).all(-1);
  return for_matrices(zero.view({shape.groups, shape.blocks}).all(1), shape);
}

std::pair<at::Tensor, at::Tensor> damping_of(const at::Tensor& factor_a, const at::Tensor& factor_g,
                                             Damping mode, double gamma) {
  return damping_of_means(mean_diagonal({factor_a, whole(factor_a)}),
                          mean_diagonal({factor_g, whole(factor_g)}), mode, gamma);
}

std::pair<at::Tensor, at::Tensor> damping_of_means(const at::Tensor& mean_a,
                                                   const at::Tensor& mean_g, Damping mode,
                                                   double gamma) {
  if (mode == Damping::kPlain) {
    return {at::full_like(mean_a, gamma), at::full_like(mean_g, gamma)};
  }
  const double root = std::sqrt(gamma);
  if (mode == Damping::kRelative) return {root * mean_a, root * mean_g};
  const at::Tensor ratio = mean_a.to(at::kDouble) / mean_g.to(at::kDouble);
  const at::Tensor usable = ratio.isfinite().logical_and_(ratio > 0).logical_and_(mean_a > 0);
  const at::Tensor pi = at::where(usable, ratio, at::ones_like(ratio)).sqrt();
  return {(root * pi).to(mean_a.scalar_type()), (root / pi).to(mean_g.scalar_type())};
}

Inverse::Inverse(const FactorShape& of, const at::TensorOptions& options, Solver how)
    : shape(of),
      solver(how),
      value(keeps_basis(how) ? at::zeros({of.matrices(), of.dim(), of.dim()}, options)
                             : aligned_zeros(of.matrices(), of.dim(), of.dim(), options)),
      failures(at::zeros({flags(of)}, options.dtype(at::kInt))),
      kept(at::zeros({flags(of)}, options.dtype(at::kBool))) {
  if (!keeps_basis(how)) return;
  value.diagonal(0, 1, 2).fill_(1);
  eigenvalues = at::zeros({of.matrices(), of.dim()}, options);
}

at::Tensor is_usable(const at::Tensor& inverse) {
  return inverse.select(2, 0).select(1, 0).gt(0).all();
}

void refresh_inverse(const at::Tensor& factor, const at::Tensor& damping, Inverse& inverse) {
  SPDKFAC_CHECK(factor.sizes() == inverse.value.sizes() && damping.numel() == inverse.shape.groups,
                "a factor's shape differs from that of its inverse or damping");
  const c10::NoGradGuard no_grad;
  if (inverse.shape.is_diagonal()) {
    refresh_diagonal(factor, damping, inverse);
  } else if (by_elements(inverse.shape)) {
    refresh_pairs(factor, damping, inverse);
  } else if (factor.is_cpu()) {
    refresh_on_cpu(factor, damping, inverse);
  } else {
    InverseBatch({{factor.contiguous(), &inverse}}, Precision::kFp32)
        .refresh(for_matrices(damping, inverse.shape));
    invert_zero_blocks(factor, damping, inverse);
  }
}

void invert_zero_blocks(const at::Tensor& factor, const at::Tensor& damping, Inverse& inverse) {
  if (!inverse.shape.is_split()) return;
  const at::Tensor zero = factor.diagonal(0, 1, 2).eq(0).all(-1);
  const at::Tensor alone = zero.logical_and(in_zero_group(factor, inverse.shape).logical_not());
  const at::Tensor added = for_matrices(damping, inverse.shape).to(factor.scalar_type());
  const at::Tensor reciprocal =
      at::where(added > 0, raised(added, at::zeros_like(added)).reciprocal(), at::ones_like(added));
  const at::Tensor diagonal =
      inverse.value.masked_fill_(alone.view({-1, 1, 1}), 0).diagonal(0, 1, 2);
  diagonal.copy_(at::where(alone.unsqueeze(1), reciprocal.unsqueeze(1), diagonal));
}

// The rules of pivots.h for matrices of one element, all at once.
void refresh_diagonal(const at::Tensor& factor, const at::Tensor& damping, Inverse& inverse) {
  const at::Tensor diagonal = factor.view({inverse.shape.groups, inverse.shape.size});
  const at::Tensor damped = diagonal + raised(damping.view({-1, 1}), diagonal.abs());
  const at::Tensor fine = damped > 0;
  const at::Tensor size = damped.abs();
  const at::Tensor largest = size.amax(1, /*keepdim=*/true);
  const at::Tensor pivots =
      at::where(size > 0, size, at::where(largest > 0, largest, at::ones_like(largest)));
  const at::Tensor finite = damped.isfinite().all(1);
  const at::Tensor made = finite.logical_and(diagonal.ne(0).any(1));
  const at::Tensor value = inverse.value.view(diagonal.sizes());
  value.copy_(at::where(made.unsqueeze(1), pivots.reciprocal(), value));
  inverse.failures.copy_(fine.all(1).logical_not().logical_and_(made));
  inverse.kept.copy_(finite.logical_not());
}

}  // namespace spdkfac::kfac
