// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/ATen.h>

#include "spdkfac/kfac/factor.h"
#include "support/tensors.h"

// K-FAC's factors straight from their definition: loops over examples and positions, in double
// precision, on the CPU. Nothing here is shared with the library but the types of its arguments.
namespace spdkfac::support {

// Positions of a kernel along one dimension.
inline std::int64_t output_size(std::int64_t input, std::int64_t kernel, std::int64_t stride,
                                std::int64_t padding, std::int64_t dilation) {
  const std::int64_t span = dilation * (kernel - 1) + 1;
  std::int64_t count = 0;
  for (std::int64_t at = -padding; at + span <= input + padding; at += stride) ++count;
  return count;
}

// What turns Σããᵀ and Σggᵀ (g: gradient of one example's loss) into factors.
inline double input_scale_reference(Convention convention, bool conv, double n, double s) {
  switch (convention) {
    case Convention::kKfc:
      return 1 / n;
    case Convention::kPaper:
      return 1 / (n * s * s);
    case Convention::kKfacPytorch:
      return conv ? 1 / (n * s * s * s) : 1 / (n * s);
  }
  return 0;
}
inline double gradient_scale_reference(Convention convention, bool conv, double n, double s) {
  switch (convention) {
    case Convention::kKfc:
      return 1 / (n * s);
    case Convention::kPaper:
      return s / n;
    case Convention::kKfacPytorch:
      return conv ? 1 / (n * n * n * s * s * s) : 1 / (n * n * n * s);
  }
  return 0;
}

// Σ vvᵀ of the vectors that it is given, per group.
class OuterProducts {
 public:
  OuterProducts(std::int64_t groups, std::int64_t dim)
      : dim_(dim), sums_(at::zeros({groups, dim, dim}, at::kDouble)) {}

  void add(std::int64_t group, const std::vector<double>& v) {
    double* sum = sums_.mutable_data_ptr<double>() + group * dim_ * dim_;
    for (std::size_t i = 0; i < v.size(); ++i) {
      for (std::size_t j = 0; j < v.size(); ++j) *sum++ += v[i] * v[j];
    }
  }
  const at::Tensor& sums() const { return sums_; }

 private:
  std::int64_t dim_;
  at::Tensor sums_;
};

// ã at output position (row, column) of one example: (channel, kernel row, kernel column), zeros
// outside the image, then 1 with a bias.
inline std::vector<double> patch_reference(const at::TensorAccessor<double, 3>& image,
                                           const kfac::ConvGeometry& conv, bool bias,
                                           std::int64_t group, std::int64_t row,
                                           std::int64_t column) {
  const std::int64_t channels = image.size(0) / conv.groups;
  std::vector<double> patch;
  for (std::int64_t c = group * channels; c < (group + 1) * channels; ++c) {
    for (std::int64_t kr = 0; kr < conv.kernel[0]; ++kr) {
      for (std::int64_t kc = 0; kc < conv.kernel[1]; ++kc) {
        const std::int64_t y = row * conv.stride[0] - conv.padding[0] + kr * conv.dilation[0];
        const std::int64_t x = column * conv.stride[1] - conv.padding[1] + kc * conv.dilation[1];
        const bool inside = y >= 0 && y < image.size(1) && x >= 0 && x < image.size(2);
        patch.push_back(inside ? image[c][y][x] : 0.0);
      }
    }
  }
  if (bias) patch.push_back(1);
  return patch;
}

// Σããᵀ of a convolution's input [examples, channels, height, width].
inline at::Tensor conv_input_sums(const at::Tensor& input, const kfac::ConvGeometry& conv,
                                  bool bias) {
  const at::Tensor values = to_host(input);
  const auto images = values.accessor<double, 4>();
  const auto positions = [&](std::size_t axis) {
    return output_size(values.size(static_cast<std::int64_t>(axis) + 2), conv.kernel[axis],
                       conv.stride[axis], conv.padding[axis], conv.dilation[axis]);
  };
  const std::int64_t dim =
      values.size(1) / conv.groups * conv.kernel[0] * conv.kernel[1] + (bias ? 1 : 0);
  OuterProducts products(conv.groups, dim);
  for (std::int64_t n = 0; n < values.size(0); ++n) {
    for (std::int64_t row = 0; row < positions(0); ++row) {
      for (std::int64_t column = 0; column < positions(1); ++column) {
        for (std::int64_t group = 0; group < conv.groups; ++group) {
          products.add(group, patch_reference(images[n], conv, bias, group, row, column));
        }
      }
    }
  }
  return products.sums();
}

// Σ∇∇ᵀ of the gradient [examples, channels, height, width] of a convolution's output.
inline at::Tensor conv_gradient_sums(const at::Tensor& gradient, std::int64_t groups) {
  const at::Tensor values = to_host(gradient);
  const auto images = values.accessor<double, 4>();
  const std::int64_t channels = values.size(1) / groups;
  OuterProducts products(groups, channels);
  for (std::int64_t n = 0; n < values.size(0); ++n) {
    for (std::int64_t row = 0; row < values.size(2); ++row) {
      for (std::int64_t column = 0; column < values.size(3); ++column) {
        for (std::int64_t group = 0; group < groups; ++group) {
          std::vector<double> v;
          for (std::int64_t c = 0; c < channels; ++c) {
            v.push_back(images[n][group * channels + c][row][column]);
          }
          products.add(group, v);
        }
      }
    }
  }
  return products.sums();
}

// Σvvᵀ of all vectors along the last dimension, with a trailing 1 with a bias.
inline at::Tensor linear_sums(const at::Tensor& tensor, bool bias) {
  const at::Tensor values = to_host(tensor);
  const std::int64_t features = values.size(-1);
  OuterProducts products(1, features + (bias ? 1 : 0));
  const double* next = values.const_data_ptr<double>();
  for (const double* end = next + values.numel(); next < end; next += features) {
    std::vector<double> v(next, next + features);
    if (bias) v.push_back(1);
    products.add(0, v);
  }
  return products.sums();
}

// The factors of one call. `gradient` is that of the mean loss, so g = examples × gradient.
inline at::Tensor input_factor_reference(const at::Tensor& input,
                                         const std::optional<kfac::ConvGeometry>& conv, bool bias,
                                         Convention convention, std::int64_t positions) {
  const at::Tensor sums = conv ? conv_input_sums(input, *conv, bias) : linear_sums(input, bias);
  return sums * input_scale_reference(convention, conv.has_value(),
                                      static_cast<double>(input.size(0)),
                                      static_cast<double>(positions));
}
inline at::Tensor gradient_factor_reference(const at::Tensor& gradient,
                                            const std::optional<kfac::ConvGeometry>& conv,
                                            Convention convention, std::int64_t positions) {
  const at::Tensor sums =
      conv ? conv_gradient_sums(gradient, conv->groups) : linear_sums(gradient, false);
  const auto examples = static_cast<double>(gradient.size(0));
  return sums * (examples * examples) *
         gradient_scale_reference(convention, conv.has_value(), examples,
                                  static_cast<double>(positions));
}

// A bound for the error of a sum of `terms` products in `type`, for every element of a factor: each
// of at most terms + kExtraRoundings roundings costs half an epsilon of Σ|v_i·v_j|, which is at
// most √(Σv_i²·Σv_j²), the diagonal.
inline at::Tensor factor_bound(const at::Tensor& factor, std::int64_t terms, at::ScalarType type) {
  // The product itself, its scaling (twice), the scale's own digits, adding onto a sum.
  constexpr double kExtraRoundings = 8;
  const at::Tensor root = factor.diagonal(0, 1, 2).sqrt();
  return root.unsqueeze(2) * root.unsqueeze(1) * epsilon(type) *
         (static_cast<double>(terms) + kExtraRoundings) / 2;
}

}  // namespace spdkfac::support
