// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/running_average.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include "spdkfac/base/check.h"
#include "spdkfac/kfac/cuda/average_cuda.h"

namespace spdkfac::kfac {
namespace {

// Elements that are worth a thread of their own.
constexpr std::int64_t kAverageGrain = 1 << 15;

// Where the row of an upper triangle begins, with its diagonal element: in a matrix of dim rows, or
// in packed triangles.
struct RowStart {
  std::int64_t dim;
  bool packed;

  std::int64_t operator()(std::int64_t group, std::int64_t row) const {
    if (!packed) return (group * dim + row) * dim + row;
    return group * (dim * (dim + 1) / 2) + row * dim - row * (row - 1) / 2;
  }
};

template <class Scalar>
bool finite_diagonal(const Scalar* sum, const RowStart& start, std::int64_t groups, Scalar scale) {
  for (std::int64_t group = 0; group < groups; ++group) {
    for (std::int64_t row = 0; row < start.dim; ++row) {
      if (!std::isfinite(sum[start(group, row)] * scale)) return false;
    }
  }
  return true;
}

// mean = keep·mean + take·sum on the upper triangles, in one pass.
template <class Scalar>
void blend(const at::Tensor& mean, const Scalar* sum, const RowStart& start, Scalar keep,
           Scalar take) {
  const std::int64_t dim = start.dim;
  const RowStart mean_start{dim, /*packed=*/false};
  Scalar* const values = mean.mutable_data_ptr<Scalar>();
  const auto blend_row = [&](std::int64_t group, std::int64_t row) {
    Scalar* const to = values + mean_start(group, row);
    const Scalar* const from = sum + start(group, row);
#pragma omp simd
    for (std::int64_t column = 0; column < dim - row; ++column) {
      to[column] = keep * to[column] + take * from[column];
    }
  };
  // A long row goes with a short one, so that threads get equal shares.
  const std::int64_t pairs = (dim + 1) / 2;
  at::parallel_for(0, mean.size(0) * pairs, kAverageGrain / dim + 1,
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t index = begin; index < end; ++index) {
                       const std::int64_t row = index % pairs;
                       blend_row(index / pairs, row);
                       if (dim - 1 - row != row) blend_row(index / pairs, dim - 1 - row);
                     }
                   });
}

// Without the padding.
at::Tensor identity_of(const FactorShape& shape, const at::TensorOptions& options) {
  const std::int64_t dim = shape.dim();
  const std::int64_t rows = shape.rows(shape.blocks - 1);
  at::Tensor identity =
      at::eye(dim, options).expand({shape.groups, shape.blocks, dim, dim}).contiguous();
  identity.select(1, shape.blocks - 1).narrow(1, rows, dim - rows).zero_();
  return identity.view({shape.matrices(), dim, dim});
}

}  // namespace

RunningAverage::RunningAverage(const FactorShape& shape, double decay, bool identity,
                               const at::TensorOptions& options)
    : shape_(shape),
      decay_(decay),
      mean_(identity ? identity_of(shape, options)
                     : at::zeros({shape.matrices(), shape.dim(), shape.dim()}, options)),
      weight_(at::full({}, identity ? 1 - decay : 1.0, options.dtype(at::kDouble))) {}

at::Tensor RunningAverage::add(const at::Tensor& sum, double scale) {
  return add_all({{this, sum, scale}})[0];
}

at::Tensor RunningAverage::add_all(const std::vector<Addition>& additions) {
  const c10::NoGradGuard no_grad;
  SPDKFAC_CHECK(!additions.empty(), "no factors to average");
  for (const Addition& one : additions) {
    SPDKFAC_CHECK(one.packed || one.sum.sizes() == one.average->mean_.sizes(),
                  "a factor's shape differs from that of its average");
  }
  const RunningAverage& first = *additions.front().average;
  if (first.mean_.is_cuda()) {
    std::vector<CudaAverage> all;
    for (const Addition& one : additions) {
      all.push_back(
          {one.sum, one.packed, one.scale, one.count, one.average->mean_, one.average->weight_});
    }
    return average_cuda(all, first.decay_);
  }
  at::Tensor finite = at::empty({static_cast<std::int64_t>(additions.size())}, at::kBool);
  for (std::size_t index = 0; index < additions.size(); ++index) {
    finite.mutable_data_ptr<bool>()[index] = additions[index].average->add_on_cpu(additions[index]);
  }
  return finite;
}

// Plain loops: the operators of a tensor library would take longer than the arithmetic.
bool RunningAverage::add_on_cpu(const Addition& addition) {
  const at::Tensor& sum = addition.sum;
  const RowStart start{mean_.size(-1), addition.packed};
  const double count = addition.count.defined() ? addition.count.item<double>() : 1;
  if (count == 0) return true;
  const double scale = addition.scale / count;
  SPDKFAC_CHECK(sum.is_contiguous() && sum.scalar_type() == mean_.scalar_type() &&
                    sum.numel() == start(mean_.size(0), 0),
                "a factor's sum is in pieces, or of another type or size than its average");
  bool finite = true;
  AT_DISPATCH_FLOATING_TYPES(mean_.scalar_type(), "RunningAverage", [&] {
    const scalar_t* const values = sum.const_data_ptr<scalar_t>();
    finite = finite_diagonal(values, start, mean_.size(0), static_cast<scalar_t>(scale));
    if (!finite) return;
    const auto weight = *weight_.const_data_ptr<double>();
    blend(mean_, values, start, static_cast<scalar_t>(1 - weight),
          static_cast<scalar_t>(weight * scale));
    *weight_.mutable_data_ptr<double>() = 1 - decay_;
  });
  return finite;
}

void RunningAverage::restore(const at::Tensor& mean, const at::Tensor& weight) {
  SPDKFAC_CHECK(mean.sizes() == mean_.sizes() && weight.dim() == 0,
                "a running average is restored with other shapes");
  mean_.copy_(mean);
  weight_.copy_(weight);
}

}  // namespace spdkfac::kfac
