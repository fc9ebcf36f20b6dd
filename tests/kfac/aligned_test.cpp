// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/aligned.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support/device.h"
#include "support/tensors.h"

namespace spdkfac {
namespace {

using support::test_options;

TEST(Aligned, MarginsAreThereOnAGpuAndForLargeMatricesAlone) {
  const std::int64_t margin = support::on_cuda() ? 8 : 7;
  for (const std::int64_t small : {1, 7, 63}) {
    const at::Tensor matrices = kfac::aligned_zeros(3, small, small, test_options(at::kFloat));
    EXPECT_TRUE(matrices.is_contiguous()) << small;
  }
  const at::Tensor matrices = kfac::aligned_zeros(3, 72, 65 + 7, test_options(at::kFloat));
  EXPECT_TRUE(matrices.is_contiguous());
  const at::Tensor odd = kfac::aligned_zeros(3, 64 + 7, 2, test_options(at::kFloat));
  EXPECT_EQ(odd.sizes(), (std::vector<std::int64_t>{3, 71, 2}));
  EXPECT_EQ(odd.stride(0), (64 + margin) * 2);
}

TEST(Aligned, TheMarginIsTheMemoryAroundAView) {
  const at::Tensor memory = at::arange(2 * 8 * 16).view({2, 8, 16});
  const at::Tensor view = memory.narrow(1, 0, 7).narrow(2, 0, 13);
  const at::Tensor whole = kfac::with_margin(view);
  EXPECT_TRUE(at::equal(whole, memory));
  EXPECT_EQ(whole.data_ptr(), memory.data_ptr());
  const at::Tensor one = memory.narrow(0, 1, 1).narrow(1, 0, 7).narrow(2, 0, 13);
  EXPECT_TRUE(at::equal(kfac::with_margin(one), memory.narrow(0, 1, 1)));
  EXPECT_EQ(kfac::with_margin(memory).data_ptr(), memory.data_ptr());
}

}  // namespace
}  // namespace spdkfac
