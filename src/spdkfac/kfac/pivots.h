// SPDX-License-Identifier: Apache-2.0
// The rules of an inversion that cannot fail, for CPU and GPU alike.
#pragma once

#include <cstdint>
#include <limits>

#ifdef __CUDACC__
#define SPDKFAC_PIVOT_CODE __host__ __device__
#else
#define SPDKFAC_PIVOT_CODE
#endif

namespace spdkfac::kfac {

template <class Scalar>
constexpr Scalar kRoundingUnit = std::numeric_limits<Scalar>::epsilon();

// How the inversion of a matrix went, the worst of its pivots.
enum PivotState : std::int32_t {
  kPivotsFine = 0,
  kPivotsRaised = 1,     // it was not positive definite: damped more where it was not
  kPivotsNotFinite = 2,  // the matrix has a NaN or an infinity
  kPivotsNone = 3,       // the matrix is zero: there is nothing to invert
};

// The reciprocal of less might not be finite: 1e-31 in single precision.
template <class Scalar>
constexpr Scalar kLeastDamping = std::numeric_limits<Scalar>::min() / kRoundingUnit<Scalar>;

// A factor is a sum of squares of operands that were rounded once (precision.h), so only the
// rounding of sums in its own type makes it indefinite: some ε of its trace, which bounds its
// largest eigenvalue. Damping below four of them is raised to that; and if gradients have all but
// vanished, to what has a finite inverse.
template <class Scalar>
SPDKFAC_PIVOT_CODE Scalar damping_above_rounding(Scalar damping, Scalar trace) {
  const Scalar rounding = 4 * kRoundingUnit<Scalar> * trace;
  const Scalar used = rounding > damping ? rounding : damping;
  return used > 0 && used < kLeastDamping<Scalar> ? kLeastDamping<Scalar> : used;
}

// What elimination divides by. A pivot that is not above the rounding of its place on the diagonal
// is replaced by that diagonal: as if the factor had been damped by as much in this place, so the
// result is the inverse of the factor plus a diagonal that is nowhere negative. In a sum of squares
// the rest of such a row is as small as rounding leaves it, so what is taken from other rows stays
// small, too. What is further below zero than that was no sum of squares; its size is used.
// `largest` serves where the diagonal is zero. Raises `state`.
template <class Scalar>
SPDKFAC_PIVOT_CODE Scalar safe_pivot(Scalar pivot, Scalar diagonal, Scalar largest,
                                     std::int32_t& state) {
  const Scalar size = diagonal < 0 ? -diagonal : diagonal;
  if (pivot - pivot != 0) {  // NaN or infinity
    state = kPivotsNotFinite;
    return 1;
  }
  if (pivot > 2 * kRoundingUnit<Scalar> * size) return pivot;
  if (state < kPivotsRaised) state = kPivotsRaised;
  if (-pivot > size) return -pivot;
  return size > 0 ? size : largest;
}

}  // namespace spdkfac::kfac
