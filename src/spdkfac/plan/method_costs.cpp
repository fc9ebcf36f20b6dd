// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/method_costs.h"

#include <algorithm>

#include "spdkfac/base/check.h"

namespace spdkfac::plan {
namespace {

// Of d³ flops. Inversion by Cholesky takes one: d³/3 to factorise, 2d³/3 to invert (LAPACK).
// Eigenvectors of a symmetric matrix by the QR algorithm take 9 (Golub & Van Loan, section 8.3),
// Q·Λ^p·Qᵀ 2 more.
constexpr double kInverseRoot = 9 + 2;
// P·Q and its QR decomposition by Householder, 4/3 and as much again for Q itself (Golub & Van
// Loan, section 5.2).
constexpr double kPowerIterationAndQr = 2 + 4.0 / 3 + 4.0 / 3;

// Measured, not counted (docs/cost-models.md): LAPACK's eigenvectors take 3.2 to 4.5 inversions of
// 128 to 1024 rows, and the product Qᵀ·Q', by which moments turn, 0.3 to 0.8.
constexpr double kExactEigenvectors = 4;
constexpr double kTurn = 0.5;

// SOAP turns gradient and momentum into the eigenbasis and the update back (arXiv 2409.11321,
// algorithm 3).
constexpr double kSoapRotations = 3;

constexpr double kNewtonSchulzSteps = 5;

// X·Xᵀ, its square, and the product with X, of m×n with m ≤ n (Muon's reference code).
double newton_schulz_flops(double m, double n) { return 4 * n * m * m + 2 * m * m * m; }

}  // namespace

Flops two_sided_flops(const LayerSpec& layer) {
  const auto a = static_cast<double>(layer.shape(FactorSide::kA).dim());
  const auto g = static_cast<double>(layer.shape(FactorSide::kG).dim());
  return Flops(2 * static_cast<double>(layer.own_elements()) * (a + g));
}

Flops statistics_flops(const LayerSpec& layer, FactorSide side, Method method) {
  if (method == Method::kMuon) return Flops(0);
  const auto dim = static_cast<double>(layer.shape(side).dim());
  return Flops(2 * static_cast<double>(layer.own_elements()) * dim);
}

Flops update_flops(const LayerSpec& layer, Method method) {
  switch (method) {
    case Method::kKfac:
    case Method::kShampoo:
      return two_sided_flops(layer);
    case Method::kSoap:
      return two_sided_flops(layer) * kSoapRotations;
    case Method::kMuon:
      break;
  }
  const auto [m, n] = std::minmax(layer.d_a, layer.d_g);
  return Flops(static_cast<double>(layer.groups) * kNewtonSchulzSteps *
               newton_schulz_flops(static_cast<double>(m), static_cast<double>(n)));
}

double refresh_in_inversions(Method method) {
  switch (method) {
    case Method::kKfac:
      return 1;
    case Method::kShampoo:
      return kInverseRoot;
    case Method::kSoap:
      return kPowerIterationAndQr;
    case Method::kMuon:
      return 0;
  }
  SPDKFAC_CHECK(false, "unknown Method");
}

double refresh_in_inversions(Solver solver) {
  switch (solver) {
    case Solver::kInverse:
      return 1;
    case Solver::kEigen:
      return kExactEigenvectors;
    case Solver::kEkfac:
    case Solver::kAdam:
      return kExactEigenvectors + kTurn;
  }
  SPDKFAC_CHECK(false, "unknown Solver");
}

double two_sided_products(Solver solver) {
  switch (solver) {
    case Solver::kInverse:
      return 1;
    case Solver::kEigen:
      return 2;  // into the eigenvectors and back
    case Solver::kEkfac:
    case Solver::kAdam:
      return 3;  // also for the second moments
  }
  SPDKFAC_CHECK(false, "unknown Solver");
}

}  // namespace spdkfac::plan
