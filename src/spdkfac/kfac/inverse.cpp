// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/inverse.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <c10/core/GradMode.h>

#include "spdkfac/base/check.h"
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

// Whether each group's factorisation went well; an infinite factor can pass unseen by info.
at::Tensor succeeded(const Factorisation& cholesky) {
  return cholesky.info.eq(0).logical_and_(cholesky.lower.diagonal(0, -2, -1).isfinite().all(-1));
}

// What is added to the diagonal of each group.
at::Tensor used_damping(const at::Tensor& factor, const at::Tensor& damping) {
  const at::Tensor trace = factor.diagonal(0, 1, 2).abs().sum(-1);
  at::Tensor used = damping.reshape({-1}).to(factor.scalar_type()).clone();
  AT_DISPATCH_FLOATING_TYPES(factor.scalar_type(), "used_damping", [&] {
    for (std::int64_t group = 0; group < used.numel(); ++group) {
      scalar_t& value = used.mutable_data_ptr<scalar_t>()[group];
      value = damping_above_rounding(value, trace.const_data_ptr<scalar_t>()[group]);
    }
  });
  return used;
}

// A group that Cholesky has refused.
void raise_group(const at::Tensor& factor, const at::Tensor& damping, Inverse& inverse,
                 std::int64_t group) {
  at::Tensor matrix = factor.clone();
  matrix.diagonal().add_(damping);
  mirror_upper(matrix);
  if (invert_with_raised_pivots(matrix) == kPivotsNotFinite) {
    inverse.kept[group] = true;
    return;
  }
  mirror_upper(matrix);
  inverse.value[group].copy_(matrix);
  inverse.failures[group] = 1;
}

void refresh_on_cpu(const at::Tensor& factor, const at::Tensor& damping, Inverse& inverse) {
  const at::Tensor used = used_damping(factor, damping);
  const Factorisation cholesky = factorise(factor, used);
  const at::Tensor good = succeeded(cholesky);
  const at::Tensor zero = factor.diagonal(0, 1, 2).eq(0).all(-1);
  inverse.failures.zero_();
  inverse.kept.zero_();
  if (good.logical_and(zero.logical_not()).all().item<bool>()) {
    // In columns it is computed in place; being symmetric it is the same in rows.
    at::Tensor in_columns = inverse.value.mT();
    at::cholesky_inverse_out(in_columns, cholesky.lower);
    return;
  }
  for (std::int64_t group = 0; group < factor.size(0); ++group) {
    if (zero[group].item<bool>()) continue;
    if (good[group].item<bool>()) {
      inverse.value[group].copy_(at::cholesky_inverse(cholesky.lower[group]));
    } else {
      raise_group(factor[group], used[group], inverse, group);
    }
  }
}

}  // namespace

at::Tensor mean_diagonal(const at::Tensor& factor) { return diagonal_means({factor}); }

at::Tensor diagonal_means(const std::vector<at::Tensor>& factors) {
  if (factors.front().is_cuda()) return diagonal_means_cuda(factors);
  std::vector<at::Tensor> means;
  for (const at::Tensor& factor : factors) means.push_back(factor.diagonal(0, 1, 2).mean(-1));
  return at::cat(means);
}

std::pair<at::Tensor, at::Tensor> damping_of(const at::Tensor& factor_a, const at::Tensor& factor_g,
                                             Damping mode, double gamma) {
  return damping_of_means(mean_diagonal(factor_a), mean_diagonal(factor_g), mode, gamma);
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

Inverse::Inverse(std::int64_t groups, std::int64_t dim, const at::TensorOptions& options)
    : value(at::zeros({groups, dim, dim}, options)),
      failures(at::zeros({groups}, options.dtype(at::kInt))),
      kept(at::zeros({groups}, options.dtype(at::kBool))) {}

at::Tensor is_usable(const at::Tensor& inverse) {
  return inverse.select(2, 0).select(1, 0).gt(0).all();
}

void refresh_inverse(const at::Tensor& factor, const at::Tensor& damping, Inverse& inverse) {
  SPDKFAC_CHECK(factor.sizes() == inverse.value.sizes() && damping.numel() == factor.size(0),
                "a factor's shape differs from that of its inverse or damping");
  const c10::NoGradGuard no_grad;
  if (factor.is_cpu()) {
    refresh_on_cpu(factor, damping, inverse);
  } else {
    InverseBatch({{factor.contiguous(), &inverse}}, Precision::kFp32).refresh(damping);
  }
}

}  // namespace spdkfac::kfac
