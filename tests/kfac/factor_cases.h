// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <ostream>
#include <vector>

#include <ATen/ATen.h>

#include "spdkfac/kfac/factor.h"
#include "support/kfac_reference.h"
#include "support/random.h"

// Calls of layers that the tests of factors go through.
namespace spdkfac::support {

enum class Layout { kContiguous, kChannelsLast, kTransposed, kEverySecond };

// The same values in other places of memory.
inline at::Tensor laid_out(const at::Tensor& values, Layout layout) {
  switch (layout) {
    case Layout::kContiguous:
      return values;
    case Layout::kChannelsLast:
      return values.contiguous(at::MemoryFormat::ChannelsLast);
    case Layout::kTransposed:
      return values.transpose(0, -1).contiguous().transpose(0, -1);
    case Layout::kEverySecond: {
      auto sizes = values.sizes().vec();
      sizes.back() *= 2;
      // Who reads between the elements, shows it.
      const at::Tensor wide =
          at::full(sizes, std::numeric_limits<double>::quiet_NaN(), values.options());
      return wide.slice(-1, 0, std::nullopt, 2).copy_(values);
    }
  }
  return values;
}

struct FactorCase {
  std::vector<std::int64_t>
      input;  // [examples, channels, height, width] or [examples, …, features]
  std::optional<kfac::ConvGeometry> conv;
  std::int64_t outputs = 1;
  bool bias = false;
  Layout layout = Layout::kContiguous;
  at::ScalarType type = at::kFloat;
  std::uint64_t seed = 1;

  std::int64_t examples() const { return input.front(); }
  // The shape of the layer's output.
  std::vector<std::int64_t> output() const {
    std::vector<std::int64_t> sizes = input;
    if (!conv) {
      sizes.back() = outputs;
      return sizes;
    }
    sizes[1] = outputs;
    for (std::size_t axis = 0; axis < 2; ++axis) {
      sizes[axis + 2] = output_size(input[axis + 2], conv->kernel[axis], conv->stride[axis],
                                    conv->padding[axis], conv->dilation[axis]);
    }
    return sizes;
  }
  std::int64_t positions() const {
    const auto sizes = output();
    const std::int64_t all =
        std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
    return all / examples() / outputs;
  }
  kfac::LayerUse use() const { return {conv, bias, examples(), positions()}; }

  at::Tensor make_input() const { return laid_out(to_device(normal(seed, input), type), layout); }
  at::Tensor make_gradient() const {
    return laid_out(to_device(normal(seed + 1, output()), type), layout);
  }
};

inline void PrintTo(const FactorCase& c, std::ostream* out) {
  static constexpr const char* kLayouts[] = {"contiguous", "channels last", "transposed",
                                             "every second"};
  *out << (c.conv ? "conv" : "linear") << " input " << at::IntArrayRef(c.input) << " outputs "
       << c.outputs << (c.bias ? " bias " : " ") << kLayouts[static_cast<std::size_t>(c.layout)]
       << " " << c.type << " seed " << c.seed;
  if (!c.conv) return;
  const auto pair = [&](const char* name, const std::array<std::int64_t, 2>& values) {
    *out << " " << name << " " << values[0] << "x" << values[1];
  };
  pair("kernel", c.conv->kernel);
  pair("stride", c.conv->stride);
  pair("padding", c.conv->padding);
  pair("dilation", c.conv->dilation);
  *out << " groups " << c.conv->groups;
}

// Shapes that models really have, and corners.
inline std::vector<FactorCase> known_factor_cases() {
  const kfac::ConvGeometry one_by_one{};
  const kfac::ConvGeometry three{{3, 3}, {1, 1}, {1, 1}};
  return {
      {{4, 6, 5, 5}, one_by_one, 7, false},
      {{4, 6, 5, 5}, one_by_one, 7, true, Layout::kChannelsLast},
      {{2, 5, 6, 8}, kfac::ConvGeometry{{1, 1}, {2, 2}}, 4, false, Layout::kChannelsLast},
      {{3, 4, 7, 7}, three, 5, true, Layout::kContiguous, at::kDouble},
      {{3, 4, 7, 7}, three, 5, false, Layout::kChannelsLast},
      {{2, 3, 15, 13}, kfac::ConvGeometry{{7, 7}, {2, 2}, {3, 3}}, 8, false},
      {{1, 3, 14, 14},
       kfac::ConvGeometry{{7, 7}, {2, 2}, {3, 3}},
       8,
       true,
       Layout::kContiguous,
       at::kDouble},
      {{2, 4, 6, 9}, kfac::ConvGeometry{{1, 7}, {1, 1}, {0, 3}}, 6, false},
      {{2, 4, 9, 6}, kfac::ConvGeometry{{7, 1}, {1, 1}, {3, 0}}, 6, true, Layout::kTransposed},
      {{2, 3, 11, 10}, kfac::ConvGeometry{{3, 2}, {2, 1}, {2, 1}, {2, 3}}, 5, true},
      // Depthwise, with one and with two outputs for each channel.
      {{3, 6, 8, 8}, kfac::ConvGeometry{{3, 3}, {1, 1}, {1, 1}, {1, 1}, 6}, 6, true},
      {{3, 6, 8, 8},
       kfac::ConvGeometry{{3, 3}, {2, 2}, {1, 1}, {1, 1}, 6},
       12,
       false,
       Layout::kChannelsLast},
      {{2, 8, 6, 6}, kfac::ConvGeometry{{3, 3}, {1, 1}, {1, 1}, {1, 1}, 4}, 4, true},
      // One output position; a kernel that sees mostly padding.
      {{3, 2, 4, 4}, kfac::ConvGeometry{{4, 4}}, 3, true, Layout::kTransposed},
      {{1, 2, 1, 1},
       kfac::ConvGeometry{{3, 3}, {1, 1}, {1, 1}},
       3,
       true,
       Layout::kContiguous,
       at::kDouble},
      {{1, 1, 1, 1}, one_by_one, 1, false},
      // Stride past the kernel: pixels that no patch sees.
      {{2, 3, 10, 10}, kfac::ConvGeometry{{2, 2}, {4, 3}}, 4, true},
      // Large enough for products by blocks.
      {{1, 64, 4, 4}, three, 130, true},
      {{6, 300}, std::nullopt, 700, true},
      {{5, 9}, std::nullopt, 4, true},
      {{5, 9}, std::nullopt, 4, false, Layout::kTransposed, at::kDouble},
      {{1, 9}, std::nullopt, 4, true},
      {{1, 1}, std::nullopt, 1, false},
      {{4, 3, 9}, std::nullopt, 5, true},
      {{4, 3, 9}, std::nullopt, 5, false, Layout::kEverySecond},
      {{2, 3, 2, 5}, std::nullopt, 6, true, Layout::kTransposed, at::kDouble},
  };
}

inline FactorCase random_conv_case(Random& random) {
  FactorCase c;
  kfac::ConvGeometry conv;
  conv.groups = random.coin() ? 1 : random.integer(1, 4);
  std::array<std::int64_t, 2> size{};
  for (std::size_t axis = 0; axis < 2; ++axis) {
    conv.kernel[axis] = random.integer(1, 4);
    conv.stride[axis] = random.integer(1, 3);
    conv.padding[axis] = random.integer(0, 2);
    conv.dilation[axis] = random.integer(1, 2);
    const std::int64_t span = conv.dilation[axis] * (conv.kernel[axis] - 1) + 1;
    const std::int64_t least = std::max<std::int64_t>(1, span - 2 * conv.padding[axis]);
    size[axis] = random.integer(least, least + 8);
  }
  c.input = {random.integer(1, 4), conv.groups * random.integer(1, 4), size[0], size[1]};
  c.outputs = conv.groups * random.integer(1, 5);
  c.conv = conv;
  return c;
}

inline std::vector<FactorCase> factor_cases() {
  constexpr int kRandomConvs = 64;
  constexpr int kRandomLinears = 12;
  std::vector<FactorCase> cases = known_factor_cases();
  Random random(20210711);
  const auto keep = [&](FactorCase c) {
    c.bias = random.coin();
    c.layout = static_cast<Layout>(random.integer(0, 3));
    if (!c.conv && c.layout == Layout::kChannelsLast) c.layout = Layout::kContiguous;
    c.type = random.coin() ? at::kFloat : at::kDouble;
    c.seed = 100 + 2 * cases.size();
    cases.push_back(std::move(c));
  };
  for (int i = 0; i < kRandomConvs; ++i) keep(random_conv_case(random));
  for (int i = 0; i < kRandomLinears; ++i) {
    FactorCase c;
    c.input = {random.integer(1, 9)};
    for (std::int64_t more = random.integer(0, 2); more > 0; --more) {
      c.input.push_back(random.integer(1, 5));
    }
    c.input.push_back(random.integer(1, 40));
    c.outputs = random.integer(1, 40);
    keep(std::move(c));
  }
  return cases;
}

}  // namespace spdkfac::support
