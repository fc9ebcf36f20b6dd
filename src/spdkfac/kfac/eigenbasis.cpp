// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/eigenbasis.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "spdkfac/base/check.h"

namespace spdkfac::kfac {
namespace {

// Moments live in the eigenvectors, so rounding must not choose these: where a factor has almost
// nothing, a slope along its diagonal does. This is its end, as a share of the mean diagonal.
constexpr double kSlope = 1e-5;

void add_slope(at::Tensor matrices) {
  const at::Tensor diagonal = matrices.diagonal(0, 1, 2);
  const at::Tensor ramp = at::linspace(0, 1, matrices.size(-1), matrices.options());
  diagonal.add_(diagonal.abs().mean(1, /*keepdim=*/true) * (kSlope * ramp));
}

// Both triangles of a factor. Padding gets a negative eigenvalue, so that its unit vectors come
// last and mix with no other.
at::Tensor symmetric(const at::Tensor& factor, const FactorShape& shape) {
  at::Tensor matrix = at::triu(factor) + at::triu(factor, 1).mT();
  const std::int64_t dim = shape.dim();
  const std::int64_t rows = shape.rows(shape.blocks - 1);
  if (rows == dim) return matrix;
  const at::Tensor last =
      matrix.view({shape.groups, shape.blocks, dim, dim}).select(1, shape.blocks - 1);
  const at::Tensor diagonal = last.diagonal(0, 1, 2);
  const at::Tensor largest = diagonal.abs().amax(1, /*keepdim=*/true);
  const at::Tensor padding = -at::where(largest > 0, largest, at::ones_like(largest));
  diagonal.narrow(1, rows, dim - rows).copy_(padding.expand({shape.groups, dim - rows}));
  return matrix;
}

at::Tensor of_each(const at::Tensor& flags) { return flags.view({-1, 1, 1}); }

void refresh_diagonal_basis(const at::Tensor& diagonal, Inverse& basis) {
  const FactorShape& shape = basis.shape;
  const at::Tensor values = diagonal.view({shape.groups, shape.size});
  const at::Tensor finite = values.isfinite().all(1, /*keepdim=*/true);
  const at::Tensor made = finite.logical_and(values.ne(0).any(1, /*keepdim=*/true));
  const at::Tensor own = basis.eigenvalues.view(values.sizes());
  own.copy_(at::where(made, values.clamp_min(0), own));
  basis.kept.copy_(finite.view({-1}).logical_not());
}

// Takes over eigenvectors, from a decomposition or another rank, and notes how they turn.
void set_basis(const at::Tensor& vectors, const at::Tensor& eigenvalues, Inverse& basis) {
  if (keeps_moments(basis.solver) && !basis.shape.is_diagonal()) {
    // All ranks multiply the same way, so that their moments are the same bit for bit.
    const at::Tensor turned = basis.value.mT().matmul(vectors.contiguous()).square();
    basis.turned = basis.turned.defined() ? basis.turned.matmul(turned) : turned;
  }
  basis.value.copy_(vectors);
  basis.eigenvalues.copy_(eigenvalues);
}

}  // namespace

void refresh_basis(const at::Tensor& factor, Inverse& basis) {
  SPDKFAC_CHECK(factor.sizes() == basis.value.sizes() && keeps_basis(basis.solver),
                "a factor's shape differs from that of its basis");
  const c10::NoGradGuard no_grad;
  basis.failures.zero_();
  if (basis.shape.is_diagonal()) return refresh_diagonal_basis(factor.diagonal(0, 1, 2), basis);

  const at::Tensor matrices = symmetric(factor, basis.shape);
  if (keeps_moments(basis.solver)) add_slope(matrices);
  const at::Tensor finite = matrices.isfinite().flatten(1).all(1);
  const at::Tensor made = finite.logical_and(in_zero_group(factor, basis.shape).logical_not());
  const at::Tensor unit = at::eye(factor.size(-1), factor.options()).expand_as(factor);
  const at::Tensor usable = at::where(of_each(made), matrices, unit);
  const auto [values, vectors] = at::linalg_eigh(usable);
  set_basis(at::where(of_each(made), vectors.flip(-1), basis.value),
            at::where(made.unsqueeze(1), values.flip(-1).clamp_min(0), basis.eigenvalues), basis);
  basis.kept.copy_(finite.logical_not());
}

void pack_basis(const Inverse& basis, at::Tensor packed) {
  const std::int64_t values = basis.eigenvalues.numel();
  const std::int64_t vectors = packed.numel() - values;
  packed.narrow(0, vectors, values).copy_(basis.eigenvalues.view({-1}));
  if (vectors > 0) packed.narrow(0, 0, vectors).copy_(basis.value.view({-1}));
}

void unpack_basis(const at::Tensor& packed, Inverse& basis) {
  const std::int64_t values = basis.eigenvalues.numel();
  const std::int64_t vectors = packed.numel() - values;
  const at::Tensor eigenvalues = packed.narrow(0, vectors, values).view(basis.eigenvalues.sizes());
  if (vectors == 0) {
    basis.eigenvalues.copy_(eigenvalues);
  } else {
    set_basis(packed.narrow(0, 0, vectors).view(basis.value.sizes()), eigenvalues, basis);
  }
}

at::Tensor eigenvalues_of(const Inverse& basis) {
  return basis.eigenvalues.view({basis.shape.groups, -1}).narrow(1, 0, basis.shape.size);
}

}  // namespace spdkfac::kfac
