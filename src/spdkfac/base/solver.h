// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace spdkfac {

// What a layer's gradient is multiplied with (docs/numerics.md, "Solvers"). kInverse: damped
// inverses of both factors. The others keep their eigenvectors. kEigen: (A⊗G+γI)⁻¹. kEkfac: the
// same with second moments of the gradient in place of the products of eigenvalues. kAdam: Adam,
// in the eigenvectors.
enum class Solver { kInverse, kEigen, kEkfac, kAdam };
const std::vector<std::string>& solver_names();  // inverse, eigen, ekfac, adam

constexpr bool keeps_basis(Solver solver) { return solver != Solver::kInverse; }
// Whether it follows the gradients of all steps.
constexpr bool keeps_moments(Solver solver) {
  return solver == Solver::kEkfac || solver == Solver::kAdam;
}

}  // namespace spdkfac
