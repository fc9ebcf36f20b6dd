// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/symmetric.h"

#include <algorithm>
#include <cstring>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "spdkfac/base/check.h"
#include "spdkfac/kfac/cuda/symmetric_cuda.h"
#include "spdkfac/kfac/precision.h"

namespace spdkfac::kfac {
namespace {

// Block rows of the upper triangle, each one product from its diagonal on: narrower ones save more
// of the lower half but run slower. Measured with benchmarks/kfac/symmetric_bench.cpp.
constexpr std::int64_t kGramBlock = 192;
// Of long rows, whose products have enough work in narrow blocks too.
constexpr std::int64_t kLongRowsGramBlock = 96;
constexpr std::int64_t kLongRows = 256;
// On a GPU, where only large products are fast.
constexpr std::int64_t kGpuGramBlock = 1024;
// Shorter rows are one product: there writing the result takes longer than computing it.
constexpr std::int64_t kGramColumns = 64;
// Rows that one block of unpacking's transposition takes, so that its columns stay in the cache.
constexpr std::int64_t kMirrorBlock = 32;

std::int64_t gram_block(const at::Tensor& rows) {
  if (!rows.is_cpu()) return kGpuGramBlock;
  return rows.size(1) < kLongRows ? kGramBlock : kLongRowsGramBlock;
}

std::int64_t groups_of(const at::Tensor& matrix) { return matrix.dim() == 3 ? matrix.size(0) : 1; }

// [d, d] or [groups, d, d] with rows in one piece.
void check_square(const at::Tensor& matrix) {
  SPDKFAC_CHECK(matrix.dim() == 2 || matrix.dim() == 3,
                fmt::format("a symmetric matrix has {} dimensions", matrix.dim()));
  SPDKFAC_CHECK(matrix.size(-1) == matrix.size(-2) && matrix.stride(-1) == 1,
                fmt::format("a symmetric matrix is {}x{}, stride {}", matrix.size(-2),
                            matrix.size(-1), matrix.stride(-1)));
}

void check_packed(const at::Tensor& packed, const at::Tensor& matrix) {
  check_square(matrix);
  const std::int64_t dim = matrix.size(-1);
  const std::int64_t elements = groups_of(matrix) * (dim * (dim + 1) / 2);
  SPDKFAC_CHECK(packed.dim() == 1 && packed.numel() == elements && packed.is_contiguous(),
                fmt::format("a packed buffer has {} elements, {} are needed in one piece",
                            packed.numel(), elements));
  SPDKFAC_CHECK(packed.scalar_type() == matrix.scalar_type() && packed.device() == matrix.device(),
                "a packed buffer differs from its matrix in type or device");
}

// Lower triangle from the upper, one group.
template <class Scalar>
void mirror(Scalar* matrix, std::int64_t dim, std::int64_t stride) {
  for (std::int64_t row0 = 0; row0 < dim; row0 += kMirrorBlock) {
    const std::int64_t row1 = std::min(dim, row0 + kMirrorBlock);
    for (std::int64_t column = row0; column < dim; ++column) {
      for (std::int64_t row = row0; row < std::min(row1, column); ++row) {
        matrix[column * stride + row] = matrix[row * stride + column];
      }
    }
  }
}

template <class Scalar>
void pack(const at::Tensor& matrix, Scalar* packed, Scalar scale) {
  const std::int64_t dim = matrix.size(-1);
  const std::int64_t stride = matrix.stride(-2);
  const std::int64_t group_stride = matrix.dim() == 3 ? matrix.stride(0) : 0;
  for (std::int64_t group = 0; group < groups_of(matrix); ++group) {
    const Scalar* values = matrix.const_data_ptr<Scalar>() + group * group_stride;
    for (std::int64_t row = 0; row < dim; ++row) {
      const Scalar* const from = values + row * stride + row;
      if (scale == 1) {
        packed = std::copy_n(from, dim - row, packed);
      } else {
        packed = std::transform(from, from + dim - row, packed,
                                [scale](Scalar value) { return scale * value; });
      }
    }
  }
}

template <class Scalar>
void unpack(const Scalar* packed, const at::Tensor& matrix) {
  const std::int64_t dim = matrix.size(-1);
  const std::int64_t stride = matrix.stride(-2);
  const std::int64_t group_stride = matrix.dim() == 3 ? matrix.stride(0) : 0;
  for (std::int64_t group = 0; group < groups_of(matrix); ++group) {
    Scalar* values = matrix.mutable_data_ptr<Scalar>() + group * group_stride;
    for (std::int64_t row = 0; row < dim; ++row) {
      const auto length = static_cast<std::size_t>(dim - row);
      std::memcpy(values + row * stride + row, packed, length * sizeof(Scalar));
      packed += length;
    }
    mirror(values, dim, stride);
  }
}

// A diagonal is its own triangles; there may be more of them than a grid has room for.
bool is_diagonal(const at::Tensor& matrix) {
  return matrix.dim() == 3 && matrix.size(0) > 1 && matrix.size(-1) == 1;
}

at::Tensor elements_of(const at::Tensor& diagonal) { return diagonal.select(2, 0).select(1, 0); }

// Matrices for which the grid of a kernel has room.
constexpr std::int64_t kMostGroups = 65535;

std::vector<Triangle> triangles_in_parts(const Triangle& all) {
  if (groups_of(all.matrix) <= kMostGroups) return {all};
  const std::int64_t elements = all.packed.numel() / all.matrix.size(0);
  std::vector<Triangle> parts;
  for (std::int64_t first = 0; first < all.matrix.size(0); first += kMostGroups) {
    const std::int64_t groups = std::min(kMostGroups, all.matrix.size(0) - first);
    parts.push_back({all.matrix.narrow(0, first, groups),
                     all.packed.narrow(0, first * elements, groups * elements), all.scale});
  }
  return parts;
}

// Not multiplied by 1, every bit stays, also of a NaN.
void pack_diagonal(const Triangle& one) {
  at::Tensor packed = one.packed;
  if (one.scale == 1) {
    packed.copy_(elements_of(one.matrix));
  } else {
    at::mul_out(packed, elements_of(one.matrix),
                at::scalar_tensor(one.scale, packed.options().device(at::kCPU)));
  }
}

}  // namespace

void add_gram(const at::Tensor& rows, double scale, at::Tensor sum, bool overwrite) {
  const std::int64_t dim = rows.size(0);
  SPDKFAC_CHECK(rows.dim() == 2 && sum.dim() == 2 && sum.size(0) == dim && sum.size(1) == dim,
                fmt::format("add_gram: {} rows into {}", dim, sum.dim() == 2 ? sum.size(0) : -1));
  const std::int64_t block = rows.size(1) < kGramColumns ? dim : gram_block(rows);
  // One product rounds all of it alike; several need not.
  const bool rounds = PrecisionGuard::rounds_to_bf16() || dim >= 2 * block;
  const at::Tensor operand = rounds ? PrecisionGuard::rounded(rows) : rows;
  const bool is_bf16 = operand.scalar_type() == at::kBFloat16;
  for (std::int64_t begin = 0; begin < dim; begin += block) {
    // What is left at the end joins the last block.
    const std::int64_t end = dim - begin < 2 * block ? dim : begin + block;
    at::Tensor part = sum.narrow(0, begin, end - begin).narrow(1, begin, dim - begin);
    const at::Tensor left = operand.narrow(0, begin, end - begin);
    const at::Tensor right = operand.narrow(0, begin, dim - begin).t();
    if (is_bf16) {
      const at::Tensor product = at::mm(left, right, at::kFloat);
      if (overwrite) part.zero_();
      part.add_(product, scale);
    } else {
      part.addmm_(left, right, overwrite ? 0 : 1, scale);
    }
    if (end == dim) break;
  }
}

void mirror_upper(at::Tensor matrix) {
  check_square(matrix);
  if (!matrix.is_cpu()) {
    matrix.copy_(at::triu(matrix) + at::triu(matrix, 1).transpose(-2, -1));
    return;
  }
  AT_DISPATCH_FLOATING_TYPES(matrix.scalar_type(), "mirror_upper", [&] {
    const std::int64_t group_stride = matrix.dim() == 3 ? matrix.stride(0) : 0;
    for (std::int64_t group = 0; group < groups_of(matrix); ++group) {
      mirror(matrix.mutable_data_ptr<scalar_t>() + group * group_stride, matrix.size(-1),
             matrix.stride(-2));
    }
  });
}

void pack_upper(const at::Tensor& matrix, at::Tensor packed, double scale) {
  pack_upper({{matrix, packed, scale}});
}

void pack_upper(const std::vector<Triangle>& triangles) {
  if (triangles.empty()) return;
  const at::Tensor& first = triangles.front().matrix;
  std::vector<Triangle> matrices;
  for (const Triangle& one : triangles) {
    check_packed(one.packed, one.matrix);
    if (is_diagonal(one.matrix)) {
      pack_diagonal(one);
    } else {
      for (Triangle& part : triangles_in_parts(one)) matrices.push_back(std::move(part));
    }
    SPDKFAC_CHECK(
        one.matrix.scalar_type() == first.scalar_type() && one.matrix.device() == first.device(),
        "triangles of one message differ in type or device");
  }
  if (matrices.empty()) return;
  if (first.is_cuda()) return pack_upper_cuda(matrices);
  AT_DISPATCH_FLOATING_TYPES(first.scalar_type(), "pack_upper", [&] {
    for (const Triangle& one : matrices) {
      pack(one.matrix, one.packed.mutable_data_ptr<scalar_t>(), static_cast<scalar_t>(one.scale));
    }
  });
}

void unpack_upper(const at::Tensor& packed, at::Tensor matrix) {
  check_packed(packed, matrix);
  if (is_diagonal(matrix)) {
    elements_of(matrix).copy_(packed);
    return;
  }
  if (matrix.is_cuda()) {
    for (const Triangle& part : triangles_in_parts({matrix, packed})) {
      unpack_upper_cuda(part.packed, part.matrix);
    }
    return;
  }
  AT_DISPATCH_FLOATING_TYPES(matrix.scalar_type(), "unpack_upper",
                             [&] { unpack(packed.const_data_ptr<scalar_t>(), matrix); });
}

}  // namespace spdkfac::kfac
