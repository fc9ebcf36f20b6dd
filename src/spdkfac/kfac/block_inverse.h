// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

namespace spdkfac::kfac {

// Replaces symmetric positive definite matrices [batch, n, n] by their inverses, in place and with
// products alone: for M = [[P, Q], [Qᵀ, R]] it inverts P, then the Schur complement S = R − QᵀP⁻¹Q,
// and puts them together. `leaf` inverts the diagonal blocks of at most `leaf_size` rows. All of
// each matrix is read; of the result only the upper triangle is meant. `scratch` has at least
// block_scratch() elements for each matrix.
// `multiply` sets out = beta·out + alpha·left·right for batches.
using InvertLeaf = std::function<void(std::int64_t begin, std::int64_t size)>;
using Multiply = std::function<void(const at::Tensor& out, const at::Tensor& left,
                                    const at::Tensor& right, double beta, double alpha)>;
void multiply_batches(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right,
                      double beta, double alpha);
void invert_blocks(const at::Tensor& matrices, std::int64_t leaf_size, const at::Tensor& scratch,
                   const InvertLeaf& leaf, const Multiply& multiply = multiply_batches);
std::int64_t block_scratch(std::int64_t size, std::int64_t leaf_size);

}  // namespace spdkfac::kfac
