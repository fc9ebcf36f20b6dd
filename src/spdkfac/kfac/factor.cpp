// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/factor.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spdkfac/base/check.h"
#include "spdkfac/kfac/block_products.h"
#include "spdkfac/kfac/precision.h"
#include "spdkfac/kfac/product_method.h"
#include "spdkfac/kfac/shifts.h"
#include "spdkfac/kfac/symmetric.h"
#include "spdkfac/kfac/unit_rows.h"

namespace spdkfac::kfac {
namespace {

// [examples and positions, features].
at::Tensor rows(const at::Tensor& tensor) { return tensor.reshape({-1, tensor.size(-1)}); }

// Patches that stay in a core's cache until their product is done.
constexpr Bytes kCachedPatches = 1 * kMebibyte;
// Images of fewer pixels are copied together on the CPU: products of short rows are slow.
constexpr std::int64_t kPixelsInPlace = 512;

bool in_channels_last(const at::Tensor& images) {
  return images.is_contiguous(at::MemoryFormat::ChannelsLast);
}

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

// Patches as rows with channels last: what such images are copied to in whole cache lines. Their
// products come out in (row, column, channel) order and are put into ours.
void add_channels_last_products(const at::Tensor& input, const ConvGeometry& conv, double scale,
                                Bytes patch_memory, const at::Tensor& sum, bool overwrite) {
  const auto [kernel_rows, kernel_columns] = conv.kernel;
  const std::int64_t channels = input.size(1);
  const std::int64_t dim = channels * kernel_rows * kernel_columns;
  const PatchGrid grid = output_grid(input, conv);
  const at::Tensor products = at::empty({dim, dim}, sum.options());
  bool first = true;  // whole products: what is upper in one order is lower in the other
  for (const PatchChunk& chunk :
       chunks(input.size(0), grid.size[0],
              dim * grid.size[1] * static_cast<std::int64_t>(sum.element_size()), patch_memory)) {
    const at::Tensor patches =
        at::empty({chunk.examples, chunk.rows, grid.size[1], kernel_rows, kernel_columns, channels},
                  sum.options());
    copy_patches(input, conv, grid, chunk, patches.permute({5, 3, 4, 0, 1, 2}));
    const at::Tensor rows = patches.view({-1, dim});
    products.addmm_(rows.t(), rows, first ? 0 : 1, scale);
    first = false;
  }
  const at::Tensor ours =
      products.view({kernel_rows, kernel_columns, channels, kernel_rows, kernel_columns, channels})
          .permute({2, 0, 1, 5, 3, 4});
  const at::Tensor target = sum.view(ours.sizes());
  overwrite ? target.copy_(ours) : target.add_(ours);
}

void add_patch_products(const at::Tensor& input, const ConvGeometry& conv, bool bias, double scale,
                        Bytes patch_memory, const at::Tensor& sum, bool overwrite) {
  const std::int64_t groups = conv.groups;
  const std::int64_t features = input.size(1) / groups * conv.kernel[0] * conv.kernel[1];
  const std::int64_t dim = features + (bias ? 1 : 0);
  const PatchGrid grid = output_grid(input, conv);
  const auto element = static_cast<std::int64_t>(sum.element_size());
  if (input.is_cpu()) patch_memory = std::min(patch_memory, kCachedPatches);
  at::Tensor memory;
  for (const PatchChunk& chunk :
       chunks(input.size(0), grid.size[0], groups * dim * grid.size[1] * element, patch_memory)) {
    const std::int64_t columns = chunk.examples * chunk.rows * grid.size[1];
    // The first chunk is the largest.
    if (!memory.defined()) memory = at::empty({groups * dim * columns}, sum.options());
    const at::Tensor patches =
        memory.narrow(0, 0, groups * dim * columns).view({groups, dim, columns});
    copy_patches(input, conv, grid, chunk, patches.narrow(1, 0, features));
    if (bias) patches.select(1, features).fill_(1);
    add_column_products(patches, scale, sum, overwrite);
    overwrite = false;
  }
}

// How many pieces of `rows` pixels a GPU takes side by side: so many that their products' tiles
// keep all of it busy, as long as pieces are long and of equal length.
std::int64_t pieces_of(std::int64_t rows, std::int64_t channels) {
  constexpr std::int64_t kTile = 128;
  constexpr std::int64_t kTiles = 256;
  constexpr std::int64_t kShortest = 512;
  const std::int64_t side = (channels + kTile - 1) / kTile;
  std::int64_t pieces = std::min(kTiles / (side * side), rows / kShortest);
  while (pieces > 1 && rows % pieces != 0) --pieces;
  return std::max<std::int64_t>(1, pieces);
}

void add_pixel_rows(const at::Tensor& pixels, double scale, const at::Tensor& sum, bool overwrite) {
  const std::int64_t pieces = pixels.is_cuda() && !PrecisionGuard::rounds_to_bf16()
                                  ? pieces_of(pixels.size(0), pixels.size(1))
                                  : 1;
  if (pieces == 1) return add_gram(pixels.t(), scale, sum, overwrite);
  const at::Tensor parts = pixels.view({pieces, -1, pixels.size(1)});
  at::Tensor products = at::empty({pieces, sum.size(0), sum.size(1)}, sum.options());
  products.baddbmm_(parts.transpose(1, 2), parts, 0, scale);
  at::Tensor to = sum;
  if (overwrite) {
    at::sum_out(to, products, 0);
  } else {
    to.add_(products.sum(0));
  }
}

// A kernel that is a point, on every pixel: the images are their own patches.
void add_pixel_products(const at::Tensor& input, double scale, const at::Tensor& sum,
                        bool overwrite) {
  const at::Tensor values = input.to(sum.scalar_type());
  const std::int64_t channels = values.size(1);
  if (in_channels_last(values)) {
    const at::Tensor pixels = values.permute({0, 2, 3, 1}).reshape({-1, channels});
    return add_pixel_rows(pixels, scale, sum[0], overwrite);
  }
  const at::Tensor images = values.reshape({values.size(0), channels, -1});
  if (values.is_cpu()) {
    for (std::int64_t example = 0; example < images.size(0); ++example) {
      add_gram(images[example], scale, sum[0], overwrite && example == 0);
    }
    return;
  }
  const at::Tensor total = at::bmm(images, images.transpose(1, 2)).sum(0);
  const at::Tensor to = sum[0];
  if (overwrite) to.zero_();
  to.add_(total, scale);
}

bool is_pointwise(const ConvGeometry& conv) {
  return conv.groups == 1 && conv.kernel == std::array<std::int64_t, 2>{1, 1} &&
         conv.padding == std::array<std::int64_t, 2>{0, 0};
}

// Whether the images of a pointwise convolution serve as they are; otherwise their pixels are
// copied into long rows.
bool pixels_in_place(const at::Tensor& input) {
  if (in_channels_last(input)) return true;
  const std::int64_t pixels = input.size(2) * input.size(3);
  if (input.is_cpu()) return pixels >= kPixelsInPlace && input.is_contiguous();
  // On a GPU an image's products must be smaller than the copy would be, and its rows aligned.
  return input.size(1) <= 2 * pixels && pixels % 4 == 0 && input.is_contiguous();
}

void add_convolution_products(const at::Tensor& images, const ConvGeometry& geometry, bool bias,
                              double scale, Bytes patch_memory, const at::Tensor& sum,
                              bool overwrite) {
  at::Tensor input = images;
  ConvGeometry conv = geometry;
  const std::int64_t dim =
      input.size(1) / conv.groups * conv.kernel[0] * conv.kernel[1] + (bias ? 1 : 0);
  SPDKFAC_CHECK(has_blocks(sum, conv.groups, dim),
                fmt::format("a factor of {} x {} meets a sum of {}", conv.groups, dim,
                            fmt::join(sum.sizes(), " x ")));
  if (input.size(0) == 0) {
    if (overwrite) at::Tensor(sum).zero_();
    return;
  }
  if (sum.size(0) != conv.groups) {  // in blocks, or a diagonal
    return add_patch_products(input, conv, bias, scale, patch_memory, sum, overwrite);
  }
  if (is_pointwise(conv)) {
    if (conv.stride != std::array<std::int64_t, 2>{1, 1} && !input.is_cpu()) {
      input = input.slice(2, 0, std::nullopt, conv.stride[0])
                  .slice(3, 0, std::nullopt, conv.stride[1])
                  .contiguous(input.suggest_memory_format());
      conv.stride = {1, 1};
    }
    if (!bias && conv.stride == std::array<std::int64_t, 2>{1, 1} && pixels_in_place(input)) {
      return add_pixel_products(input, scale, sum, overwrite);
    }
  }
  const auto add = [&](ProductMethod method, const at::Tensor& to, bool replace) {
    if (method == ProductMethod::kShifts) {
      add_shift_products(input, conv, scale, to[0], replace);
    } else if (!input.is_cpu() && conv.groups == 1 && !bias && in_channels_last(input)) {
      add_channels_last_products(input, conv, scale, patch_memory, to[0], replace);
    } else {
      add_patch_products(input, conv, bias, scale, patch_memory, to, replace);
    }
  };
  ProductMethod method = ProductMethod::kPatches;
  if (!bias) {
    at::Tensor trial;
    method = product_method(input, conv, [&](ProductMethod candidate) {
      if (!trial.defined()) trial = at::empty_like(sum);
      add(candidate, trial, true);
    });
  }
  add(method, sum, overwrite);
}

void add_call_products(const at::Tensor& input, const ConvCall& call, bool bias, double scale,
                       Bytes patch_memory, const at::Tensor& sum, bool overwrite) {
  const PlaneConvolution planes = as_planes(with_examples(input, call), call, patch_memory);
  for (std::size_t part = 0; part < planes.parts.size(); ++part) {
    add_convolution_products(planes.images(part), planes.plane, bias, scale, patch_memory, sum,
                             overwrite && part == 0);
  }
}

// Of a layer whose bias alone is trained: every row is 1.
void add_ones(const at::Tensor& input, const std::optional<ConvCall>& conv, double scale,
              at::Tensor& sum, bool overwrite) {
  std::int64_t rows = conv ? 0 : input.numel() / std::max<std::int64_t>(1, input.size(-1));
  if (conv) {
    const at::Tensor batch = with_examples(input, *conv);
    rows = batch.size(0) * output_positions(batch, *conv);
  }
  if (overwrite) sum.zero_();
  sum.add_(scale * static_cast<double>(rows));
}

// Counts of the rows of a table: the diagonal of A, [rows, 1, 1]. Nothing waits for the device.
void add_lookups(const at::Tensor& indices, const Lookup& lookup, double scale, at::Tensor& sum,
                 bool overwrite) {
  SPDKFAC_CHECK(sum.dim() == 3 && sum.size(1) == 1, "the factor of a table is not its diagonal");
  if (overwrite) sum.zero_();
  const at::Tensor rows = indices.reshape({-1}).to(at::kLong);
  const at::Tensor counted = rows.ne(lookup.padding).to(sum.scalar_type()).mul_(scale);
  sum.view({-1}).index_add_(0, rows, counted);
}

at::Tensor new_sum(const at::Tensor& like, std::int64_t groups, std::int64_t dim) {
  const at::ScalarType type = like.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return at::empty({groups, dim, dim}, like.options().dtype(type).requires_grad(false));
}

}  // namespace

LayerUse layer_use(const at::Tensor& input, const std::optional<ConvCall>& conv, bool bias) {
  LayerUse use{.conv = conv, .bias = bias};
  if (conv) {
    const at::Tensor batch = with_examples(input, *conv);
    SPDKFAC_CHECK(batch.dim() == conv->dimensions + 2,
                  fmt::format("the input of a convolution of {} dimensions has {}",
                              conv->dimensions, input.dim()));
    SPDKFAC_CHECK(batch.size(1) % conv->groups == 0,
                  fmt::format("{} channels in {} groups", batch.size(1), conv->groups));
    use.examples = batch.size(0);
    use.positions = output_positions(batch, *conv);
  } else {
    SPDKFAC_CHECK(input.dim() >= 1, "a Linear layer's input has no dimensions");
    use.examples = input.dim() == 1 ? 1 : input.size(0);
    for (std::int64_t axis = 1; axis < input.dim() - 1; ++axis) use.positions *= input.size(axis);
  }
  return use;
}

LayerUse lookup_use(const at::Tensor& indices, std::int64_t padding) {
  LayerUse use;
  use.examples = indices.dim() == 0 ? 1 : indices.size(0);
  use.positions = use.examples == 0 ? 1 : indices.numel() / use.examples;
  use.lookup = Lookup{padding, indices.dim() < 2 || use.examples == 1};
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

double example_scale(Convention convention, FactorSide side, const ExampleCount& count) {
  const auto examples = static_cast<double>(count.examples);
  if (side == FactorSide::kA) return 1 / examples;
  // What makes of ∇, the gradient of the loss, that of one example: kKfacPytorch takes its share in
  // the mean loss, the others its own.
  const auto terms = static_cast<double>(count.terms);
  const bool mean = count.reduction == LossReduction::kMean;
  const bool share = convention == Convention::kKfacPytorch;
  double factor = 1;
  if (mean && !share) factor = terms;
  if (!mean && share) factor = 1 / terms;
  return factor * factor / examples;
}

void add_input_products(const at::Tensor& input, const LayerUse& use, double scale,
                        Bytes patch_memory, at::Tensor& sum, bool overwrite) {
  const c10::NoGradGuard no_grad;
  if (use.lookup) {
    add_lookups(input, *use.lookup, scale, sum, overwrite);
  } else if (use.by_example) {
    if (overwrite) sum.zero_();
    sum.add_(scale * static_cast<double>(use.examples));
  } else if (!use.weight) {
    add_ones(input, use.conv, scale, sum, overwrite);
  } else if (use.conv) {
    add_call_products(input, *use.conv, use.bias, scale, patch_memory, sum, overwrite);
  } else {
    add_row_products(rows(input), use.bias, scale, patch_memory, sum, overwrite);
  }
}

void add_gradient_products(const at::Tensor& gradient, const LayerUse& use, double scale,
                           Bytes patch_memory, at::Tensor& sum, bool overwrite) {
  const c10::NoGradGuard no_grad;
  if (use.by_example) {
    add_unit_products(sums_of_examples(gradient, use), scale, sum, overwrite);
  } else if (use.conv) {
    // Positions of the output are the patches of a 1x1 kernel on it.
    const ConvGeometry pointwise{.groups = use.conv->groups};
    add_convolution_products(as_images(with_examples(gradient, *use.conv)), pointwise, false, scale,
                             patch_memory, sum, overwrite);
  } else {
    add_row_products(rows(gradient), false, scale, patch_memory, sum, overwrite);
  }
}

at::Tensor input_factor(const at::Tensor& input, const LayerUse& use, Convention convention,
                        Bytes patch_memory) {
  std::int64_t dim = use.conv ? with_examples(input, *use.conv).size(1) / use.conv->groups *
                                    use.conv->kernel_size()
                              : input.size(-1);
  dim = (use.weight ? dim : 0) + (use.bias ? 1 : 0);
  at::Tensor factor = new_sum(input, use.groups(), dim);
  add_input_products(input, use,
                     position_scale(convention, FactorSide::kA, use) *
                         example_scale(convention, FactorSide::kA, {use.examples, use.examples}),
                     patch_memory, factor, /*overwrite=*/true);
  mirror_upper(factor);
  return factor;
}

at::Tensor gradient_factor(const at::Tensor& gradient, const LayerUse& use, Convention convention,
                           Bytes patch_memory) {
  const std::int64_t dim =
      use.conv ? with_examples(gradient, *use.conv).size(1) / use.conv->groups : gradient.size(-1);
  at::Tensor factor = new_sum(gradient, use.groups(), dim);
  add_gradient_products(gradient, use,
                        position_scale(convention, FactorSide::kG, use) *
                            example_scale(convention, FactorSide::kG, {use.examples, use.examples}),
                        patch_memory, factor, /*overwrite=*/true);
  mirror_upper(factor);
  return factor;
}

}  // namespace spdkfac::kfac
