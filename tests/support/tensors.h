// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support/device.h"

// Tensors of tests: made from a seed on the CPU, so that every device sees the same numbers, and
// compared on the CPU in double precision.
namespace spdkfac::support {

// Normally distributed, in double precision on the CPU.
inline at::Tensor normal(std::uint64_t seed, at::IntArrayRef sizes) {
  return at::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(seed),
                   at::TensorOptions().dtype(at::kDouble));
}
// Whole numbers from lo to hi, both included.
inline at::Tensor whole(std::uint64_t seed, std::int64_t lo, std::int64_t hi,
                        at::IntArrayRef sizes) {
  return at::randint(lo, hi + 1, sizes, at::make_generator<at::CPUGeneratorImpl>(seed),
                     at::TensorOptions().dtype(at::kDouble));
}

inline at::Tensor to_device(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.to(test_options(type));
}
inline at::Tensor to_host(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU, at::kDouble).contiguous();
}

// Distance of 1 to the next number of the type.
inline double epsilon(at::ScalarType type) {
  return type == at::kDouble ? std::numeric_limits<double>::epsilon()
                             : static_cast<double>(std::numeric_limits<float>::epsilon());
}

// Every bit is the same; NaNs included.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const at::Tensor left = a.detach().cpu().contiguous();
  const at::Tensor right = b.detach().cpu().contiguous();
  if (!left.is_floating_point()) return at::equal(left, right);
  const auto bits = left.element_size() == 8 ? at::kLong : at::kInt;
  return at::equal(left.view(bits), right.view(bits));
}

// |actual − expected| ≤ bound in every element; `bound` is a number or a tensor of the same shape.
inline ::testing::AssertionResult near_within(const at::Tensor& actual, const at::Tensor& expected,
                                              const at::Tensor& bound) {
  if (actual.sizes() != expected.sizes()) {
    return ::testing::AssertionFailure()
           << "shape " << actual.sizes() << ", expected " << expected.sizes();
  }
  const at::Tensor got = to_host(actual);
  const at::Tensor want = to_host(expected);
  const at::Tensor allowed = bound.expand_as(want).contiguous();
  double worst = 0;
  std::int64_t place = -1;
  for (std::int64_t i = 0; i < want.numel(); ++i) {
    const double error =
        std::abs(got.const_data_ptr<double>()[i] - want.const_data_ptr<double>()[i]);
    const double excess = error - allowed.const_data_ptr<double>()[i];
    if (excess <= 0) continue;
    // A NaN is worse than everything.
    if (place >= 0 && excess <= worst) continue;
    place = i;
    worst = excess;
    if (std::isnan(excess)) break;
  }
  if (place < 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "element " << place << " of shape " << want.sizes()
                                       << " is " << got.const_data_ptr<double>()[place]
                                       << ", expected " << want.const_data_ptr<double>()[place]
                                       << " within " << allowed.const_data_ptr<double>()[place];
}
inline ::testing::AssertionResult near_within(const at::Tensor& actual, const at::Tensor& expected,
                                              double bound) {
  return near_within(actual, expected, at::full({}, bound, at::kDouble));
}

// Zero below the diagonal.
inline at::Tensor upper(const at::Tensor& matrix) { return at::triu(matrix); }

// NaN below the diagonal: who reads it, shows it.
inline at::Tensor poison_lower(const at::Tensor& matrix) {
  const at::Tensor below = at::ones(matrix.sizes(), matrix.options().dtype(at::kBool)).tril(-1);
  return matrix.masked_fill(below, std::numeric_limits<double>::quiet_NaN());
}

}  // namespace spdkfac::support
