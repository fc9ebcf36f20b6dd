// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/symmetric.h"

#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "spdkfac/base/check.h"
#include "support/device.h"
#include "support/kfac_reference.h"
#include "support/special_values.h"
#include "support/tensors.h"

namespace spdkfac {
namespace {

using support::factor_bound;
using support::near_within;
using support::normal;
using support::poison_lower;
using support::same_bits;
using support::test_options;
using support::to_device;
using support::to_host;
using support::upper;
using support::whole;

// rows·rowsᵀ for rows [d, k].
at::Tensor gram_reference(const at::Tensor& rows) {
  const at::Tensor values = to_host(rows);
  const auto row = values.accessor<double, 2>();
  at::Tensor gram = at::zeros({values.size(0), values.size(0)}, at::kDouble);
  auto out = gram.accessor<double, 2>();
  for (std::int64_t i = 0; i < values.size(0); ++i) {
    for (std::int64_t j = i; j < values.size(0); ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < values.size(1); ++k) sum += row[i][k] * row[j][k];
      out[i][j] = sum;
      out[j][i] = sum;
    }
  }
  return gram;
}

at::Tensor gram_bound(const at::Tensor& gram, std::int64_t terms, at::ScalarType type) {
  return factor_bound(gram.unsqueeze(0), terms, type).squeeze(0);
}

// The upper triangles, row by row, matrix by matrix.
at::Tensor packed_reference(const at::Tensor& matrix) {
  const at::Tensor values = to_host(matrix.dim() == 2 ? matrix.unsqueeze(0) : matrix);
  const auto at_ = values.accessor<double, 3>();
  std::vector<double> packed;
  for (std::int64_t g = 0; g < values.size(0); ++g) {
    for (std::int64_t i = 0; i < values.size(1); ++i) {
      for (std::int64_t j = i; j < values.size(1); ++j) packed.push_back(at_[g][i][j]);
    }
  }
  return at::tensor(packed, at::kDouble);
}

std::int64_t packed_size(std::int64_t groups, std::int64_t dim) {
  return groups * dim * (dim + 1) / 2;
}

// One to far past any block size; odd sizes, powers of two and their neighbours.
const std::vector<std::int64_t>& dimensions() {
  static const std::vector<std::int64_t> dims = {1,   2,   3,   5,   8,   31,  32,  33,
                                                 64,  65,  127, 128, 129, 255, 256, 257,
                                                 383, 511, 512, 513, 577, 700};
  return dims;
}

class GramOfDimension : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(GramOfDimension, AddsScaledProductsToTheUpperTriangle) {
  const std::int64_t d = GetParam();
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const std::int64_t k : {1, 13}) {
      const at::Tensor rows = to_device(normal(1, {d, k}), type);
      const at::Tensor expected = gram_reference(rows);
      at::Tensor sum = to_device(poison_lower(at::ones({d, d}, at::kDouble)), type);
      kfac::add_gram(rows, 0.75, sum);
      // The bound covers the product; adding 1 costs one more rounding of a result below 100.
      EXPECT_TRUE(near_within(upper(sum), upper(0.75 * expected + 1),
                              gram_bound(expected, k, type) + 100 * support::epsilon(type)))
          << "k " << k << " " << type;
    }
  }
}

TEST_P(GramOfDimension, RowsGivenTransposedAreTheSameRows) {
  const std::int64_t d = GetParam();
  const at::Tensor values = to_device(whole(2, -5, 5, {9, d}), at::kFloat);
  const at::Tensor expected = gram_reference(values.t());
  at::Tensor sum = at::zeros({d, d}, test_options(at::kFloat));
  kfac::add_gram(values.t(), 1, sum);
  // Whole numbers: exact in any order.
  EXPECT_TRUE(at::equal(to_host(upper(sum)), upper(expected)));
}

TEST_P(GramOfDimension, RowsAndSumMayBePartsOfLargerTensors) {
  const std::int64_t d = GetParam();
  const at::Tensor wide = at::full({d + 1, 14}, kNan, test_options(at::kFloat));
  const at::Tensor rows = wide.narrow(0, 1, d).slice(1, 0, 14, 2);
  rows.copy_(whole(3, -5, 5, {d, 7}));
  const at::Tensor buffer = at::full({3, d, d}, 2, test_options(at::kFloat));
  kfac::add_gram(rows, 0.5, buffer[1]);
  EXPECT_TRUE(at::equal(to_host(upper(buffer[1])), upper(2 + 0.5 * gram_reference(rows))));
  EXPECT_TRUE(at::equal(buffer[0], at::full_like(buffer[0], 2)));
  EXPECT_TRUE(at::equal(buffer[2], at::full_like(buffer[2], 2)));
}

TEST_P(GramOfDimension, CallsAccumulate) {
  const std::int64_t d = GetParam();
  const at::Tensor rows = to_device(whole(4, -5, 5, {d, 6}), at::kFloat);
  at::Tensor sum = at::zeros({d, d}, test_options(at::kFloat));
  kfac::add_gram(rows.narrow(1, 0, 2), 4, sum);
  kfac::add_gram(rows.narrow(1, 2, 4), 4, sum);
  EXPECT_TRUE(at::equal(to_host(upper(sum)), upper(4 * gram_reference(rows))));
}

TEST_P(GramOfDimension, MirrorCopiesTheUpperTriangleOverTheLower) {
  const std::int64_t d = GetParam();
  const at::Tensor values = normal(5, {2, d, d});
  const at::Tensor expected = values.triu() + values.triu(1).mT();
  const at::Tensor matrix = to_device(poison_lower(values), at::kDouble);
  kfac::mirror_upper(matrix);
  EXPECT_TRUE(at::equal(to_host(matrix), expected));
  const at::Tensor single = to_device(poison_lower(values[1]), at::kDouble);
  kfac::mirror_upper(single);
  EXPECT_TRUE(at::equal(to_host(single), expected[1]));
}

TEST_P(GramOfDimension, PackingIsRowByRowAndUnpackingWritesBothTriangles) {
  const std::int64_t d = GetParam();
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const std::int64_t groups : {1, d < 200 ? 3 : 2}) {
      const at::Tensor matrix = to_device(poison_lower(normal(6, {groups, d, d})), type);
      // In the middle of a longer buffer, as a member of a message.
      const at::Tensor buffer = at::full({packed_size(groups, d) + 12}, 7, test_options(type));
      const at::Tensor packed = buffer.narrow(0, 5, packed_size(groups, d));
      kfac::pack_upper(matrix, packed);
      EXPECT_TRUE(at::equal(to_host(packed), packed_reference(matrix)));
      EXPECT_TRUE(at::equal(buffer.narrow(0, 0, 5), at::full({5}, 7, test_options(type))));
      EXPECT_TRUE(
          at::equal(buffer.narrow(0, buffer.size(0) - 7, 7), at::full({7}, 7, test_options(type))));

      const at::Tensor back = at::full({groups, d, d}, kNan, test_options(type));
      kfac::unpack_upper(packed, back);
      EXPECT_TRUE(at::equal(back, matrix.triu() + matrix.triu(1).mT()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dimensions, GramOfDimension, ::testing::ValuesIn(dimensions()));

TEST(Symmetric, EmptyProductLeavesTheSum) {
  at::Tensor sum = at::ones({4, 4}, test_options(at::kFloat));
  kfac::add_gram(at::zeros({4, 0}, test_options(at::kFloat)), 1, sum);
  EXPECT_TRUE(at::equal(upper(sum), upper(at::ones_like(sum))));
}

// More matrices than one kernel takes, of all sizes; the scales are powers of two: exact.
TEST(Symmetric, AMessagePacksAsItsTrianglesAlone) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    std::vector<kfac::Triangle> triangles;
    std::vector<at::Tensor> expected;
    std::int64_t elements = 0;
    for (std::int64_t i = 0; i < 70; ++i) elements += packed_size(1 + i % 3, 1 + 9 * i);
    const at::Tensor message = at::full({elements}, kNan, test_options(type));
    std::int64_t offset = 0;
    for (std::int64_t i = 0; i < 70; ++i) {
      const std::int64_t groups = 1 + i % 3;
      const std::int64_t d = 1 + 9 * i;
      const at::Tensor matrix = to_device(poison_lower(normal(20 + i, {groups, d, d})), type);
      const double scale = i % 2 == 0 ? 1 : 0.25;
      triangles.push_back({matrix, message.narrow(0, offset, packed_size(groups, d)), scale});
      expected.push_back(packed_reference(matrix) * scale);
      offset += packed_size(groups, d);
    }
    kfac::pack_upper(triangles);
    EXPECT_TRUE(at::equal(to_host(message), at::cat(expected)));
  }
  kfac::pack_upper(std::vector<kfac::Triangle>{});
}

TEST(Symmetric, TrianglesOfAMessageAgreeInType) {
  const at::Tensor floats = at::zeros({2, 2}, test_options(at::kFloat));
  const at::Tensor doubles = at::zeros({2, 2}, test_options(at::kDouble));
  EXPECT_THROW(kfac::pack_upper({{floats, at::zeros({3}, floats.options())},
                                 {doubles, at::zeros({3}, doubles.options())}}),
               InternalError);
}

TEST(Symmetric, OneMatrixWithoutGroupsPacksAndUnpacks) {
  const at::Tensor matrix =
      at::tensor({1, 2, 3, 0, 4, 5, 0, 0, 6}, test_options(at::kFloat)).view({3, 3});
  const at::Tensor packed = at::zeros({6}, test_options(at::kFloat));
  kfac::pack_upper(matrix, packed);
  EXPECT_TRUE(at::equal(packed, at::tensor({1, 2, 3, 4, 5, 6}, test_options(at::kFloat))));
  const at::Tensor back = at::zeros({3, 3}, test_options(at::kFloat));
  kfac::unpack_upper(packed, back);
  EXPECT_TRUE(at::equal(
      back, at::tensor({1, 2, 3, 2, 4, 5, 3, 5, 6}, test_options(at::kFloat)).view({3, 3})));
  kfac::pack_upper(matrix, packed, 0.5);
  EXPECT_TRUE(at::equal(packed, at::tensor({0.5, 1., 1.5, 2., 2.5, 3.}, test_options(at::kFloat))));
}

TEST(Symmetric, BlocksOfLargerMatricesPackUnpackAndMirror) {
  const std::int64_t d = 37;
  const at::Tensor values = normal(8, {2, d, d});
  const at::Tensor full = values.triu() + values.triu(1).mT();
  const at::Tensor packed = to_device(packed_reference(values), at::kFloat);
  const auto block = [&] {
    const at::Tensor big = at::full({2, 2 * d, 2 * d + 1}, kNan, test_options(at::kFloat));
    return big.narrow(1, 3, d).narrow(2, 5, d);
  };
  const at::Tensor from = block();
  from.copy_(poison_lower(values));
  const at::Tensor out = at::zeros_like(packed);
  kfac::pack_upper(from, out);
  EXPECT_TRUE(at::equal(out, packed));
  kfac::mirror_upper(from);
  EXPECT_TRUE(at::equal(to_host(from), to_host(full.to(at::kFloat))));
  const at::Tensor into = block();
  kfac::unpack_upper(packed, into);
  EXPECT_TRUE(at::equal(to_host(into), to_host(full.to(at::kFloat))));
  // Nothing beside the block is written.
  const at::Tensor big = at::zeros({2, d + 4, d + 4}, test_options(at::kFloat));
  kfac::unpack_upper(packed, big.narrow(1, 2, d).narrow(2, 2, d));
  big.narrow(1, 2, d).narrow(2, 2, d).zero_();
  EXPECT_TRUE(at::equal(big, at::zeros_like(big)));
}

// Never wrong numbers: rows that are not contiguous are refused.
TEST(Symmetric, MoreMatricesThanAGridHasRoomForArePacked) {
  constexpr std::int64_t kMatrices = 70'000;
  const auto options = support::test_options(at::kDouble);
  const at::Tensor matrices = at::arange(kMatrices * 4, options).view({-1, 2, 2});
  const at::Tensor packed = at::empty({kMatrices * 3}, options);
  kfac::pack_upper(matrices, packed, 2);
  const at::Tensor expected =
      matrices.view({-1, 4}).index_select(1, at::tensor({0, 1, 3}, options.dtype(at::kLong)));
  EXPECT_TRUE(at::equal(packed.view({-1, 3}), 2 * expected));
  at::Tensor unpacked = at::empty_like(matrices);
  kfac::unpack_upper(packed, unpacked);
  EXPECT_TRUE(at::equal(unpacked, 2 * (at::triu(matrices) + at::triu(matrices, 1).mT())));
}

TEST(Symmetric, MatricesWithGapsInTheirRowsAreInternalErrors) {
  const at::Tensor big = at::zeros({8, 8}, test_options(at::kFloat));
  const at::Tensor gaps = big.slice(1, 0, 8, 2).narrow(0, 0, 4);
  const at::Tensor packed = at::zeros({10}, test_options(at::kFloat));
  EXPECT_THROW(kfac::pack_upper(gaps, packed), InternalError);
  EXPECT_THROW(kfac::unpack_upper(packed, gaps), InternalError);
  EXPECT_THROW(kfac::mirror_upper(gaps), InternalError);
}

// Bits, not values: minus zero, infinities and NaNs pass as they are.
TEST(Symmetric, PackingKeepsEveryBit) {
  const at::Tensor matrix =
      at::tensor({-0.0, kInf, kNan, -kInf, 1e-45, 3.0}, test_options(at::kFloat));
  const at::Tensor full = at::zeros({3, 3}, test_options(at::kFloat));
  kfac::unpack_upper(matrix, full);
  const at::Tensor packed = at::zeros({6}, test_options(at::kFloat));
  kfac::pack_upper(full, packed);
  EXPECT_TRUE(same_bits(packed, matrix));
}

TEST(Symmetric, WrongSizesAreInternalErrors) {
  const auto zeros = [](at::IntArrayRef sizes) {
    return at::zeros(sizes, test_options(at::kFloat));
  };
  for (const std::int64_t elements : {0, 19, 21}) {
    EXPECT_THROW(kfac::pack_upper(zeros({2, 4, 4}), zeros({elements})), InternalError) << elements;
    EXPECT_THROW(kfac::unpack_upper(zeros({elements}), zeros({2, 4, 4})), InternalError)
        << elements;
  }
  EXPECT_THROW(kfac::pack_upper(zeros({4, 5}), zeros({10})), InternalError);
  EXPECT_THROW(kfac::unpack_upper(zeros({10}), zeros({5, 4})), InternalError);
  EXPECT_THROW(kfac::pack_upper(zeros({4}), zeros({10})), InternalError);
  EXPECT_THROW(kfac::mirror_upper(zeros({4, 5})), InternalError);
  EXPECT_THROW(kfac::add_gram(zeros({4, 3}), 1, zeros({5, 5})), InternalError);
  EXPECT_THROW(kfac::add_gram(zeros({4, 3}), 1, zeros({4, 3})), InternalError);
}

TEST(Symmetric, PackedBufferMustBeContiguousAndOfTheSameType) {
  const at::Tensor matrix = at::zeros({4, 4}, test_options(at::kFloat));
  const at::Tensor doubles = at::zeros({10}, test_options(at::kDouble));
  EXPECT_THROW(kfac::pack_upper(matrix, doubles), InternalError);
  EXPECT_THROW(kfac::unpack_upper(doubles, matrix), InternalError);
  const at::Tensor gaps = at::zeros({20}, test_options(at::kFloat)).slice(0, 0, 20, 2);
  EXPECT_THROW(kfac::pack_upper(matrix, gaps), InternalError);
  EXPECT_THROW(kfac::unpack_upper(gaps, matrix), InternalError);
}

}  // namespace
}  // namespace spdkfac
