// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

namespace spdkfac::kfac {

// Replaces symmetric positive definite matrices [batch, n, n] by their inverses, in place and with
// products alone. For M = [[P, Q], [Qᵀ, R]] = LLᵀ it makes W = L⁻¹ from W₁ of P, T = W₁Q, W₂ of
// R − TᵀT, and −W₂TᵀW₁ below them; the inverse is WᵀW. Errors grow with the condition number, as
// Cholesky's do; with P⁻¹ in place of W₁ they grow with its square. `leaf` makes W of a diagonal
// block of at most `leaf_size` rows, with zeros above the diagonal. Of each matrix the upper
// triangle is read, and of the result it alone is meant. `scratch` has at least block_scratch()
// elements for each matrix.
using FactorLeaf = std::function<void(std::int64_t begin, std::int64_t size)>;

// Which of these an operand of a product is, and so how large its elements can be.
enum class BlockKind {
  kMatrix,  // M or T: at most d or √d, where d is the largest element of M's diagonal
  kInverse  // W or W₁ᵀT: at most 1/√λ or √(d/λ), where λ is M's smallest eigenvalue
};
struct BlockKinds {
  BlockKind left = BlockKind::kMatrix;
  BlockKind right = BlockKind::kMatrix;
};

// Sets out = beta·out + alpha·left·right for batches.
using Multiply =
    std::function<void(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right,
                       double beta, double alpha, BlockKinds kinds)>;
void multiply_batches(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right,
                      double beta, double alpha, BlockKinds kinds);
void invert_blocks(const at::Tensor& matrices, std::int64_t leaf_size, const at::Tensor& scratch,
                   const FactorLeaf& leaf, const Multiply& multiply = multiply_batches);
std::int64_t block_scratch(std::int64_t size, std::int64_t leaf_size);

}  // namespace spdkfac::kfac
