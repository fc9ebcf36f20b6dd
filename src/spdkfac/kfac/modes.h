// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spdkfac/base/units.h"

namespace spdkfac {

// How sums over examples and positions become factors (docs/numerics.md). With N examples, S
// positions and g the gradient of one example's loss:
//   kKfc           A = Σããᵀ/N        G = Σggᵀ/(N·S)
//   kPaper         A = Σããᵀ/(N·S²)   G = S·Σggᵀ/N
//   kKfacPytorch   A = Σããᵀ/(N·S³)   G = Σggᵀ/(N³·S³); Linear: Σããᵀ/(N·S), Σggᵀ/(N³·S)
enum class Convention { kKfc, kPaper, kKfacPytorch };
const std::vector<std::string>& convention_names();  // kfc, paper, kfac-pytorch

// What the loss of a pass is of the losses of its examples.
enum class LossReduction { kMean, kSum };
const std::vector<std::string>& loss_reduction_names();  // mean, sum

// kPlain: (A+γI)⁻¹ and (G+γI)⁻¹, as the paper prints it. kPi: A+π√γ·I and G+(√γ/π)·I with
// π = √((tr A/d_A)/(tr G/d_G)); π = 1 where a trace is not positive and finite. kRelative:
// A+√γ·(tr A/d_A)·I and G+√γ·(tr G/d_G)·I, so that γ means the same for every scale of the factors.
enum class Damping { kPlain, kPi, kRelative };
const std::vector<std::string>& damping_names();  // plain, pi, relative

// The method whose length a layer's update takes; its direction is K-FAC's. kSgd: the length of the
// gradient. kAdam: that of Adam's step, and K-FAC preconditions Adam's first moment.
enum class Graft { kNone, kSgd, kAdam };
const std::vector<std::string>& graft_names();  // none, sgd, adam

// What is kept of a factor that is too large to be kept whole: its diagonal, or blocks along it.
enum class LargeFactors { kDiagonal, kBlocks };
const std::vector<std::string>& large_factors_names();  // diagonal, blocks
// What becomes of the positions at which a layer's weight is shared, such as pixels or tokens
// (Eschenhagen et al. 2023, arXiv:2311.00636). kExpand: each is a row of its own. kReduce: an
// example has one row, the mean of its inputs and the sum of its gradients.
enum class Sharing { kExpand, kReduce };
const std::vector<std::string>& sharing_names();  // expand, reduce

// Factors of at most so many rows are kept whole.
struct FactorLimit {
  std::int64_t max_dimension = 8192;
  LargeFactors large = LargeFactors::kDiagonal;
};

// Of the patches of a convolution that are held at once.
constexpr Bytes kDefaultPatchMemory = 256 * kMebibyte;

}  // namespace spdkfac
