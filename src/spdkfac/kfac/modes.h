// SPDX-License-Identifier: Apache-2.0
#pragma once

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

// kPlain: (A+γI)⁻¹ and (G+γI)⁻¹, as the paper prints it. kPi: A+π√γ·I and G+(√γ/π)·I with
// π = √((tr A/d_A)/(tr G/d_G)); π = 1 where a trace is not positive and finite.
enum class Damping { kPlain, kPi };
const std::vector<std::string>& damping_names();  // plain, pi

// Of the patches of a convolution that are held at once.
constexpr Bytes kDefaultPatchMemory = 256 * kMebibyte;

}  // namespace spdkfac
