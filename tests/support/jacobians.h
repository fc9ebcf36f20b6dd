// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/ATen.h>
#include <torch/torch.h>

#include "spdkfac/kfac/precondition.h"

// The factors of a layer of any kind from derivatives that autograd takes of it: nothing is known
// of patches, strides or padding. In double precision, one derivative for each output position.
namespace spdkfac::support {

struct LayerUnderTest {
  at::Tensor weight;
  at::Tensor bias;  // undefined without one
  kfac::WeightLayout layout = kfac::WeightLayout::kOutIn;
  std::int64_t groups = 1;
};

// [groups, out, in·kernel] in the order of the weight's own elements.
inline at::Tensor matrix_of(const at::Tensor& weight, kfac::WeightLayout layout,
                            std::int64_t groups) {
  const std::int64_t rows = weight.size(0) / groups;
  std::vector<at::Tensor> parts;
  for (std::int64_t group = 0; group < groups; ++group) {
    const at::Tensor own = weight.narrow(0, group * rows, rows);
    parts.push_back(layout == kfac::WeightLayout::kOutIn
                        ? own.reshape({rows, -1})
                        : own.transpose(0, 1).reshape({weight.size(1), -1}));
  }
  return at::stack(parts);
}

// ã of every example and position, [groups, rows, d_a]: what the first output of a group is
// multiplied by. `output` [N, C, …] or [N, C].
inline at::Tensor inputs_of_outputs(const LayerUnderTest& layer, const at::Tensor& output) {
  const at::Tensor flat = output.reshape({output.size(0), output.size(1), -1});
  const std::int64_t outputs = output.size(1) / layer.groups;
  std::vector<at::Tensor> groups;
  for (std::int64_t group = 0; group < layer.groups; ++group) {
    std::vector<at::Tensor> rows;
    for (std::int64_t example = 0; example < flat.size(0); ++example) {
      for (std::int64_t position = 0; position < flat.size(2); ++position) {
        const at::Tensor one = flat[example][group * outputs][position];
        const at::Tensor gradient = torch::autograd::grad({one}, {layer.weight}, {}, true)[0];
        at::Tensor row = matrix_of(gradient, layer.layout, layer.groups)[group][0];
        if (layer.bias.defined()) row = at::cat({row, at::ones({1}, row.options())});
        rows.push_back(row);
      }
    }
    groups.push_back(at::stack(rows));
  }
  return at::stack(groups);
}

// A = Σããᵀ/N of the call that made `output`.
inline at::Tensor input_factor_of(const LayerUnderTest& layer, const at::Tensor& output) {
  const at::Tensor rows = inputs_of_outputs(layer, output);
  return at::matmul(rows.transpose(1, 2), rows) / static_cast<double>(output.size(0));
}

// G = Σggᵀ/(N·S) with g = N·∇, the gradient of the mean loss.
inline at::Tensor gradient_factor_of(const at::Tensor& gradient, std::int64_t groups) {
  const std::int64_t examples = gradient.size(0);
  const auto count = static_cast<double>(examples);
  const at::Tensor rows = gradient.reshape({examples, groups, gradient.size(1) / groups, -1})
                              .permute({1, 0, 3, 2})
                              .reshape({groups, -1, gradient.size(1) / groups});
  return at::matmul(rows.transpose(1, 2), rows) * (count * count) /
         static_cast<double>(rows.size(1));
}

// (G + γ)⁻¹·∇W·(A + γ)⁻¹ by the explicit Kronecker product, for one group.
inline at::Tensor solved(const at::Tensor& a, const at::Tensor& g, const at::Tensor& gradient,
                         double damping) {
  const auto damped = [&](const at::Tensor& factor) {
    return factor + damping * at::eye(factor.size(0), factor.options());
  };
  return at::linalg_solve(at::kron(damped(g), damped(a)), gradient.reshape({-1}))
      .view(gradient.sizes());
}

}  // namespace spdkfac::support
