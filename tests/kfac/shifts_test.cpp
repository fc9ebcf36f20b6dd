// SPDX-License-Identifier: Apache-2.0
// Factors from shifted products against plain loops over patches, in double precision.
#include "spdkfac/kfac/shifts.h"

#include <ostream>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kfac/factor_cases.h"
#include "support/device.h"
#include "support/kfac_reference.h"
#include "support/tensors.h"

namespace spdkfac {
namespace {

using support::conv_input_sums;
using support::near_within;
using support::to_device;
using support::to_host;
using support::upper;

struct ShiftCase {
  std::vector<std::int64_t> input;
  kfac::ConvGeometry conv;
};
void PrintTo(const ShiftCase& c, std::ostream* out) {
  *out << at::IntArrayRef(c.input) << " kernel " << c.conv.kernel[0] << "x" << c.conv.kernel[1]
       << " padding " << c.conv.padding[0] << "," << c.conv.padding[1] << " dilation "
       << c.conv.dilation[0] << "," << c.conv.dilation[1];
}

class Shifts : public ::testing::TestWithParam<ShiftCase> {
 protected:
  at::Tensor input(at::MemoryFormat format = at::MemoryFormat::Contiguous) const {
    return to_device(support::normal(5, GetParam().input), at::kDouble).contiguous(format);
  }
  at::Tensor expected() const {
    return conv_input_sums(to_host(input()), GetParam().conv, /*bias=*/false)[0];
  }
  std::int64_t dim() const {
    return GetParam().input[1] * GetParam().conv.kernel[0] * GetParam().conv.kernel[1];
  }
};

TEST_P(Shifts, GiveTheProductsOfPatches) {
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    at::Tensor sum = at::full({dim(), dim()}, 7, input().options());
    kfac::add_shift_products(input(format), GetParam().conv, 1, sum, /*overwrite=*/true);
    EXPECT_TRUE(near_within(upper(sum), upper(expected()), 1e-11));
  }
}

TEST_P(Shifts, AreScaledAndAdded) {
  at::Tensor sum = at::full({dim(), dim()}, 0.5, input().options());
  kfac::add_shift_products(input(), GetParam().conv, 0.25, sum, /*overwrite=*/false);
  EXPECT_TRUE(near_within(upper(sum), upper(0.5 + 0.25 * expected()), 1e-11));
}

INSTANTIATE_TEST_SUITE_P(
    Convolutions, Shifts,
    ::testing::Values(
        ShiftCase{{2, 3, 7, 6}, {.kernel = {3, 3}, .padding = {1, 1}}},
        ShiftCase{{2, 2, 5, 8}, {.kernel = {3, 3}}}, ShiftCase{{1, 2, 3, 3}, {.kernel = {3, 3}}},
        ShiftCase{{3, 2, 2, 2}, {.kernel = {3, 3}, .padding = {1, 1}}},
        ShiftCase{{2, 2, 2, 9}, {.kernel = {3, 3}, .padding = {1, 1}}},
        ShiftCase{{2, 3, 6, 7}, {.kernel = {1, 7}, .padding = {0, 3}}},
        ShiftCase{{2, 3, 7, 5}, {.kernel = {7, 1}, .padding = {3, 0}}},
        ShiftCase{{1, 2, 8, 9}, {.kernel = {5, 3}, .padding = {2, 0}}},
        ShiftCase{{2, 2, 9, 8}, {.kernel = {2, 4}, .padding = {1, 2}}},
        // More padding than the kernel reaches.
        ShiftCase{{1, 2, 4, 5}, {.kernel = {3, 3}, .padding = {4, 3}}},
        ShiftCase{{2, 2, 9, 9}, {.kernel = {3, 3}, .padding = {2, 2}, .dilation = {2, 2}}},
        ShiftCase{{1, 2, 11, 8}, {.kernel = {3, 2}, .padding = {1, 0}, .dilation = {3, 2}}},
        ShiftCase{{1, 2, 9, 12}, {.kernel = {2, 3}, .padding = {0, 3}, .dilation = {2, 4}}}));

TEST(ShiftWork, CountsShiftsAndEdges) {
  const at::Tensor images = at::zeros({1, 1, 10, 10});
  const kfac::ConvGeometry same{.kernel = {3, 3}, .padding = {1, 1}};
  // 25 shifts on 100 pixels; one row of 12 positions above and below and one column of 10 at each
  // side, where 3 of the 9 places meet the image; patches: 81 products at each of 100 positions.
  EXPECT_DOUBLE_EQ(kfac::shift_work(images, same),
                   (25 * 100 + 9 * (12 + 12 + 10 + 10)) / (81.0 * 100));
}

TEST(ShiftWork, StridesGroupsAndPointsHaveNoShifts) {
  const at::Tensor images = at::zeros({1, 2, 4, 8});
  EXPECT_TRUE(kfac::has_shifts(images, {.kernel = {3, 3}}));
  EXPECT_TRUE(kfac::has_shifts(images, {.kernel = {1, 3}, .dilation = {2, 2}}));
  EXPECT_FALSE(kfac::has_shifts(images, {.kernel = {1, 1}}));
  EXPECT_FALSE(kfac::has_shifts(images, {.kernel = {3, 3}, .stride = {2, 1}}));
  EXPECT_FALSE(kfac::has_shifts(images, {.kernel = {3, 3}, .groups = 2}));
}

TEST(ShiftWork, APlaceThatNeverMeetsTheImageHasNoShifts) {
  const at::Tensor images = at::zeros({1, 2, 4, 8});
  // Two outputs, with the first place of the kernel on the two rows of padding above the image.
  EXPECT_FALSE(kfac::has_shifts(images, {.kernel = {4, 2}, .padding = {2, 0}, .dilation = {2, 1}}));
  EXPECT_TRUE(kfac::has_shifts(images, {.kernel = {4, 2}, .padding = {3, 0}, .dilation = {2, 1}}));
}

}  // namespace
}  // namespace spdkfac
