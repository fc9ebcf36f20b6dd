// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/factor.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spdkfac/base/check.h"
#include "spdkfac/kfac/symmetric.h"

namespace spdkfac {
namespace {

// [N, C, H, W] also of a single example [C, H, W].
at::Tensor images(const at::Tensor& tensor) {
  return tensor.dim() == 3 ? tensor.unsqueeze(0) : tensor;
}

// [examples and positions, features].
at::Tensor rows(const at::Tensor& tensor) { return tensor.reshape({-1, tensor.size(-1)}); }

// Parts of a batch whose patches fit into the memory.
std::vector<PatchChunk> chunks(std::int64_t examples, std::int64_t output_rows,
                               std::int64_t row_bytes, Bytes patch_memory) {
  const std::int64_t rows_at_once =
      std::max<std::int64_t>(1, patch_memory.value() / std::max<std::int64_t>(1, row_bytes));
  std::vector<PatchChunk> result;
  if (rows_at_once >= output_rows) {
    const std::int64_t step = rows_at_once / output_rows;
    for (std::int64_t example = 0; example < examples; example += step) {
      result.push_back({example, std::min(step, examples - example), 0, output_rows});
    }
    return result;
  }
  for (std::int64_t example = 0; example < examples; ++example) {
    for (std::int64_t row = 0; row < output_rows; row += rows_at_once) {
      result.push_back({example, 1, row, std::min(rows_at_once, output_rows - row)});
    }
  }
  return result;
}

void add_patch_products(const at::Tensor& input, const ConvGeometry& conv, bool bias, double scale,
                        Bytes patch_memory, at::Tensor& sum, bool overwrite) {
  const std::int64_t groups = conv.groups;
  const std::int64_t features = input.size(1) / groups * conv.kernel[0] * conv.kernel[1];
  const std::int64_t dim = features + (bias ? 1 : 0);
  SPDKFAC_CHECK(sum.dim() == 3 && sum.size(0) == groups && sum.size(1) == dim,
                fmt::format("a factor of {} x {} meets a sum of {}", groups, dim,
                            fmt::join(sum.sizes(), " x ")));
  const auto [output_rows, output_columns] = output_size(input, conv);
  const auto element = static_cast<std::int64_t>(sum.element_size());
  at::Tensor memory;
  for (const PatchChunk& chunk :
       chunks(input.size(0), output_rows, groups * dim * output_columns * element, patch_memory)) {
    const std::int64_t columns = chunk.examples * chunk.rows * output_columns;
    // The first chunk is the largest.
    if (!memory.defined()) memory = at::empty({groups * dim * columns}, sum.options());
    const at::Tensor patches =
        memory.narrow(0, 0, groups * dim * columns).view({groups, dim, columns});
    copy_patches(input, conv, chunk, patches.narrow(1, 0, features));
    if (bias) patches.select(1, features).fill_(1);
    if (groups == 1) {
      add_gram(patches[0], scale, sum[0], overwrite);
    } else {
      sum.baddbmm_(patches, patches.transpose(1, 2), overwrite ? 0 : 1, scale);
    }
    overwrite = false;
  }
  if (overwrite) sum.zero_();  // there were no examples
}

void add_row_products(const at::Tensor& input, bool bias, double scale, at::Tensor& sum,
                      bool overwrite) {
  const at::Tensor features = rows(input).to(sum.scalar_type());
  const std::int64_t dim = features.size(1);
  SPDKFAC_CHECK(sum.dim() == 3 && sum.size(1) == dim + (bias ? 1 : 0),
                fmt::format("{} features meet a sum of {}", dim, fmt::join(sum.sizes(), " x ")));
  add_gram(features.t(), scale, sum[0].narrow(0, 0, dim).narrow(1, 0, dim), overwrite);
  if (!bias) return;
  const at::Tensor last = sum[0].select(1, dim);
  if (overwrite) last.zero_();
  last.narrow(0, 0, dim).add_(features.sum(0), scale);
  last.narrow(0, dim, 1).add_(scale * static_cast<double>(features.size(0)));
}

at::Tensor new_sum(const at::Tensor& like, std::int64_t groups, std::int64_t dim) {
  const at::ScalarType type = like.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return at::empty({groups, dim, dim}, like.options().dtype(type).requires_grad(false));
}

}  // namespace

const std::vector<std::string>& convention_names() {
  static const std::vector<std::string> names = {"kfc", "paper", "kfac-pytorch"};
  return names;
}

LayerUse layer_use(const at::Tensor& input, const std::optional<ConvGeometry>& conv, bool bias) {
  LayerUse use{.conv = conv, .bias = bias};
  if (conv) {
    SPDKFAC_CHECK(input.dim() == 3 || input.dim() == 4,
                  fmt::format("a convolution's input has {} dimensions", input.dim()));
    const at::Tensor batch = images(input);
    SPDKFAC_CHECK(batch.size(1) % conv->groups == 0,
                  fmt::format("{} channels in {} groups", batch.size(1), conv->groups));
    const auto size = output_size(batch, *conv);
    use.examples = batch.size(0);
    use.positions = size[0] * size[1];
  } else {
    SPDKFAC_CHECK(input.dim() >= 1, "a Linear layer's input has no dimensions");
    use.examples = input.dim() == 1 ? 1 : input.size(0);
    for (std::int64_t axis = 1; axis < input.dim() - 1; ++axis) use.positions *= input.size(axis);
  }
  return use;
}

double position_scale(Convention convention, FactorSide side, const LayerUse& use) {
  const auto positions = static_cast<double>(use.positions);
  const bool is_a = side == FactorSide::kA;
  switch (convention) {
    case Convention::kKfc:
      return is_a ? 1 : 1 / positions;
    case Convention::kPaper:
      return is_a ? 1 / (positions * positions) : positions;
    case Convention::kKfacPytorch:
      return use.conv ? 1 / (positions * positions * positions) : 1 / positions;
  }
  SPDKFAC_CHECK(false, "a convention without a scale");
}

double example_scale(Convention convention, FactorSide side, std::int64_t examples) {
  const auto count = static_cast<double>(examples);
  // An example's gradient is `examples` times its share in the gradient of the mean loss; for
  // kKfacPytorch, which takes the latter, G is Σ∇∇ᵀ/N.
  const bool unscaled = side == FactorSide::kA || convention == Convention::kKfacPytorch;
  return unscaled ? 1 / count : count;
}

void add_input_products(const at::Tensor& input, const LayerUse& use, double scale,
                        Bytes patch_memory, at::Tensor& sum, bool overwrite) {
  const c10::NoGradGuard no_grad;
  if (use.conv) {
    add_patch_products(images(input), *use.conv, use.bias, scale, patch_memory, sum, overwrite);
  } else {
    add_row_products(input, use.bias, scale, sum, overwrite);
  }
}

void add_gradient_products(const at::Tensor& gradient, const LayerUse& use, double scale,
                           Bytes patch_memory, at::Tensor& sum, bool overwrite) {
  const c10::NoGradGuard no_grad;
  if (use.conv) {
    // Positions of the output are the patches of a 1x1 kernel on it.
    const ConvGeometry pointwise{.groups = use.conv->groups};
    add_patch_products(images(gradient), pointwise, false, scale, patch_memory, sum, overwrite);
  } else {
    add_row_products(gradient, false, scale, sum, overwrite);
  }
}

at::Tensor input_factor(const at::Tensor& input, const LayerUse& use, Convention convention,
                        Bytes patch_memory) {
  std::int64_t dim = use.conv ? images(input).size(1) / use.conv->groups * use.conv->kernel[0] *
                                    use.conv->kernel[1]
                              : input.size(-1);
  dim += use.bias ? 1 : 0;
  at::Tensor factor = new_sum(input, use.groups(), dim);
  add_input_products(input, use,
                     position_scale(convention, FactorSide::kA, use) *
                         example_scale(convention, FactorSide::kA, use.examples),
                     patch_memory, factor, /*overwrite=*/true);
  mirror_upper(factor);
  return factor;
}

at::Tensor gradient_factor(const at::Tensor& gradient, const LayerUse& use, Convention convention,
                           Bytes patch_memory) {
  const std::int64_t dim =
      use.conv ? images(gradient).size(1) / use.conv->groups : gradient.size(-1);
  at::Tensor factor = new_sum(gradient, use.groups(), dim);
  add_gradient_products(gradient, use,
                        position_scale(convention, FactorSide::kG, use) *
                            example_scale(convention, FactorSide::kG, use.examples),
                        patch_memory, factor, /*overwrite=*/true);
  mirror_upper(factor);
  return factor;
}

}  // namespace spdkfac
