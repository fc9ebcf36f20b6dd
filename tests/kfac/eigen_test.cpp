// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "spdkfac/kfac/eigen_precondition.h"
#include "spdkfac/kfac/eigenbasis.h"
#include "support/kronecker.h"
#include "support/matrices.h"
#include "support/tensors.h"

namespace spdkfac {
namespace {

using kfac::BasisMoments;
using kfac::BasisRule;
using kfac::Inverse;
using kfac::LayerBasis;
using support::near_within;
using support::normal;
using support::to_device;
using support::to_host;

constexpr double kTight = 1e-10;  // a few operations in double precision on numbers near 1
constexpr AdamOptions kNumbers{.beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-8};

at::Tensor random_factor(std::uint64_t seed, std::int64_t dim) {
  const at::Tensor rows = normal(seed, {2 * dim, dim});
  return at::matmul(rows.t(), rows) / static_cast<double>(2 * dim);
}

// [groups, d, d] on the device, of which only the upper triangles may be read.
at::Tensor as_factor(const std::vector<at::Tensor>& groups) {
  return support::poison_lower(to_device(at::stack(groups), at::kDouble));
}

Inverse basis_of(const at::Tensor& factor, const FactorShape& shape, Solver solver) {
  Inverse basis(shape, factor.options(), solver);
  kfac::refresh_basis(factor, basis);
  return basis;
}

at::Tensor solved(const at::Tensor& gradient, Inverse& a, Inverse& g, const BasisRule& rule,
                  BasisMoments* moments = nullptr) {
  const at::Tensor own = to_device(gradient, at::kDouble);
  const at::Tensor out = at::empty_like(own);
  kfac::precondition_in_basis(own, {a, g, moments}, rule, out);
  return out;
}

BasisMoments moments_for(at::IntArrayRef shape, Solver solver) {
  return {shape, support::test_options(at::kDouble), solver};
}

// (A⊗G+γI)⁻¹·vec(∇W), written out.
at::Tensor exactly_damped(const at::Tensor& gradient, const at::Tensor& a, const at::Tensor& g,
                          double damping) {
  at::Tensor product = support::kronecker(a, g);
  product.diagonal().add_(damping);
  return support::unstacked_columns(at::linalg_solve(product, support::stacked_columns(gradient)),
                                    gradient.size(0));
}

TEST(EigenSolver, DampsTheProductOfTheFactorsExactly) {
  const at::Tensor a = random_factor(1, 5);
  const at::Tensor g = random_factor(2, 3);
  const at::Tensor gradient = normal(3, {3, 5});
  Inverse of_a = basis_of(as_factor({a}), {5}, Solver::kEigen);
  Inverse of_g = basis_of(as_factor({g}), {3}, Solver::kEigen);
  const double means = (a.trace() / 5 * g.trace() / 3).item<double>();
  for (const auto& [mode, damping, gamma] :
       {std::tuple(Damping::kPi, 0.3, 0.3), std::tuple(Damping::kPlain, 0.01, 0.01),
        std::tuple(Damping::kRelative, 0.1, 0.1 * means)}) {
    const at::Tensor update =
        solved(gradient.unsqueeze(0), of_a, of_g, {Solver::kEigen, mode, damping});
    EXPECT_TRUE(near_within(update[0], exactly_damped(gradient, a, g, gamma), kTight))
        << damping_names()[static_cast<std::size_t>(mode)];
  }
}

TEST(EigenSolver, TreatsEachGroupByItself) {
  const std::vector<at::Tensor> a = {random_factor(1, 4), random_factor(2, 4) * 7};
  const std::vector<at::Tensor> g = {random_factor(3, 2), random_factor(4, 2)};
  const at::Tensor gradient = normal(5, {2, 2, 4});
  Inverse of_a = basis_of(as_factor(a), {4, 2}, Solver::kEigen);
  Inverse of_g = basis_of(as_factor(g), {2, 2}, Solver::kEigen);
  const at::Tensor update = solved(gradient, of_a, of_g, {Solver::kEigen, Damping::kRelative, 0.1});
  for (std::int64_t group = 0; group < 2; ++group) {
    const auto i = static_cast<std::size_t>(group);
    const double gamma = 0.1 * (a[i].trace() / 4 * g[i].trace() / 2).item<double>();
    EXPECT_TRUE(
        near_within(update[group], exactly_damped(gradient[group], a[i], g[i], gamma), kTight));
  }
}

// Five rows in blocks of two: the last block is padded. Its numbers are small next to what padding
// might put beside them.
TEST(EigenSolver, LeavesPaddingOfBlocksOut) {
  const double small = 1e-9;
  const std::vector<at::Tensor> blocks = {random_factor(1, 2), random_factor(2, 2),
                                          random_factor(3, 1)};
  at::Tensor kept = at::zeros({3, 2, 2}, at::kDouble);
  at::Tensor whole = at::zeros({5, 5}, at::kDouble);
  for (std::int64_t block = 0; block < 3; ++block) {
    const at::Tensor one = blocks[static_cast<std::size_t>(block)] * small;
    const std::int64_t rows = one.size(0);
    kept[block].narrow(0, 0, rows).narrow(1, 0, rows).copy_(one);
    whole.narrow(0, 2 * block, rows).narrow(1, 2 * block, rows).copy_(one);
  }
  const at::Tensor diagonal = at::rand({3}, at::kDouble) + 0.5;
  const at::Tensor gradient = normal(5, {3, 5});
  Inverse of_a =
      basis_of(support::poison_lower(to_device(kept, at::kDouble)), {5, 1, 3}, Solver::kEigen);
  Inverse of_g = basis_of(to_device(diagonal.view({3, 1, 1}), at::kDouble),
                          FactorShape{3}.as_diagonal(), Solver::kEigen);
  const at::Tensor update =
      solved(gradient.unsqueeze(0), of_a, of_g, {Solver::kEigen, Damping::kPi, small});
  const at::Tensor wanted = exactly_damped(gradient, whole, diagonal.diag(), small);
  EXPECT_TRUE(near_within(update[0] * small, wanted * small, kTight));
}

TEST(EigenSolver, GivesTheGradientBackBeforeItHasFactors) {
  Inverse a({4}, support::test_options(at::kDouble), Solver::kEigen);
  Inverse g({2}, support::test_options(at::kDouble), Solver::kEigen);
  const at::Tensor gradient = to_device(normal(1, {1, 2, 4}), at::kDouble);
  const at::Tensor out = at::empty_like(gradient);
  const at::Tensor inner =
      kfac::precondition_in_basis(gradient, {a, g}, {Solver::kEigen, Damping::kPi, 0.1}, out);
  EXPECT_TRUE(at::equal(out, gradient));
  EXPECT_NEAR(inner.item<double>(), -gradient.square().sum().item<double>(), 1e-12);
}

TEST(Eigenbasis, IsThatOfTheFactorTheLargestFirst) {
  const std::vector<double> eigenvalues = {1, 9, 4, 0.25};
  const at::Tensor factor = support::with_eigenvalues(1, eigenvalues);
  const Inverse basis = basis_of(as_factor({factor}), {4}, Solver::kEigen);
  EXPECT_TRUE(
      near_within(basis.eigenvalues[0], at::tensor({9.0, 4.0, 1.0, 0.25}, at::kDouble), kTight));
  const at::Tensor vectors = to_host(basis.value[0]);
  EXPECT_TRUE(near_within(vectors.t().matmul(vectors), at::eye(4, at::kDouble), kTight));
  EXPECT_TRUE(near_within(factor.matmul(vectors), vectors * to_host(basis.eigenvalues[0]), kTight));
}

// A factor of rank one leaves three directions open. Whatever rounding does to it, moments find the
// same eigenvectors.
TEST(Eigenbasis, DoesNotHangOnRoundingWhereTheFactorHasNothing) {
  const at::Tensor row = normal(1, {4, 1});
  const at::Tensor factor = row.matmul(row.t());
  const at::Tensor noise = normal(2, {4, 4}) * 1e-15;
  const Inverse basis = basis_of(as_factor({factor}), {4}, Solver::kAdam);
  const Inverse other = basis_of(as_factor({factor + noise + noise.t()}), {4}, Solver::kAdam);
  const at::Tensor products = to_host(basis.value[0]).t().matmul(to_host(other.value[0])).abs();
  // Noise of 1e-15 next to a slope of 1e-5/4 of the mean.
  EXPECT_TRUE(near_within(products, at::eye(4, at::kDouble), 1e-8));
}

TEST(Eigenbasis, KeepsWhatAZeroOrInfiniteFactorCannotReplace) {
  const double inf = std::numeric_limits<double>::infinity();
  Inverse basis =
      basis_of(as_factor({random_factor(1, 3), random_factor(2, 3)}), {3, 2}, Solver::kEkfac);
  const at::Tensor vectors = basis.value.clone();
  const at::Tensor values = basis.eigenvalues.clone();
  kfac::refresh_basis(as_factor({at::zeros({3, 3}, at::kDouble), at::full({3, 3}, inf)}), basis);
  EXPECT_TRUE(at::equal(basis.value, vectors));
  EXPECT_TRUE(at::equal(basis.eigenvalues, values));
  EXPECT_TRUE(at::equal(basis.kept.cpu(), at::tensor({0, 1}).to(at::kBool)));
}

TEST(Eigenbasis, TravelsWhole) {
  for (const FactorShape shape : {FactorShape{3}, FactorShape{5, 2, 3}, FactorShape{4, 1, 4}}) {
    const at::Tensor factor =
        to_device(at::eye(shape.dim(), at::kDouble).repeat({shape.matrices(), 1, 1}) +
                      normal(1, {shape.matrices(), shape.dim(), shape.dim()}).abs() * 0.1,
                  at::kDouble);
    const Inverse sent = basis_of(factor, shape, Solver::kAdam);
    const at::Tensor buffer = at::zeros({shape.result_elements(Solver::kAdam)}, factor.options());
    kfac::pack_basis(sent, buffer);
    Inverse received(shape, factor.options(), Solver::kAdam);
    kfac::unpack_basis(buffer, received);
    EXPECT_TRUE(at::equal(received.value, sent.value));
    EXPECT_TRUE(at::equal(received.eigenvalues, sent.eigenvalues));
  }
}

// v'(p, q) = Σ (g_o·g'_p)²·v(o, i)·(a_i·a'_q)², by loops.
TEST(BasisMoments, TurnWithTheEigenvectors) {
  Inverse a = basis_of(as_factor({random_factor(1, 4)}), {4}, Solver::kAdam);
  Inverse g = basis_of(as_factor({random_factor(2, 3)}), {3}, Solver::kAdam);
  a.turned.reset();  // from unit vectors
  g.turned.reset();
  BasisMoments moments = moments_for({1, 3, 4}, Solver::kAdam);
  const at::Tensor before = normal(3, {3, 4}).square();
  moments.second.copy_(before.unsqueeze(0));
  const at::Tensor old_a = to_host(a.value[0]).clone();
  const at::Tensor old_g = to_host(g.value[0]).clone();
  kfac::refresh_basis(as_factor({random_factor(4, 4)}), a);
  kfac::refresh_basis(as_factor({random_factor(5, 3)}), g);
  kfac::turn_moments({a, g, &moments});
  at::Tensor wanted = at::zeros({3, 4}, at::kDouble);
  const auto square = [](const at::Tensor& old_vectors, std::int64_t one,
                         const at::Tensor& new_vectors, std::int64_t other) {
    const double product =
        at::dot(old_vectors.select(1, one), to_host(new_vectors[0]).select(1, other))
            .item<double>();
    return product * product;
  };
  for (std::int64_t p = 0; p < 3; ++p) {
    for (std::int64_t q = 0; q < 4; ++q) {
      for (std::int64_t o = 0; o < 3; ++o) {
        for (std::int64_t i = 0; i < 4; ++i) {
          wanted[p][q] +=
              square(old_g, o, g.value, p) * before[o][i] * square(old_a, i, a.value, q);
        }
      }
    }
  }
  EXPECT_TRUE(near_within(moments.second[0], wanted, kTight));
  EXPECT_FALSE(a.turned.defined());
  // The squares of a rotation add up to 1 along both sides, so nothing is lost.
  EXPECT_NEAR(moments.second.sum().item<double>(), before.sum().item<double>(), kTight);
}

// In the eigenvectors of the factors the steps are those of torch's Adam, turned.
TEST(AdamSolver, TakesTorchsStepsInTheEigenvectors) {
  Inverse a = basis_of(as_factor({random_factor(1, 4)}), {4}, Solver::kAdam);
  Inverse g = basis_of(as_factor({random_factor(2, 3)}), {3}, Solver::kAdam);
  const at::Tensor vectors_a = to_host(a.value[0]);
  const at::Tensor vectors_g = to_host(g.value[0]);
  at::Tensor inside = torch::zeros({3, 4}, at::kDouble).requires_grad_();
  torch::optim::Adam adam(
      std::vector<at::Tensor>{inside},
      torch::optim::AdamOptions(1.0).betas({kNumbers.beta1, kNumbers.beta2}).eps(kNumbers.epsilon));
  BasisMoments moments = moments_for({1, 3, 4}, Solver::kAdam);
  for (std::uint64_t step = 0; step < 5; ++step) {
    const at::Tensor gradient = normal(10 + step, {3, 4});
    const at::Tensor before = inside.detach().clone();
    inside.mutable_grad() = vectors_g.t().matmul(gradient).matmul(vectors_a);
    adam.step();
    const at::Tensor turned = vectors_g.matmul(before - inside.detach()).matmul(vectors_a.t());
    const at::Tensor update =
        solved(gradient.unsqueeze(0), a, g, {Solver::kAdam, Damping::kPi, 0, kNumbers}, &moments);
    EXPECT_TRUE(near_within(update[0], turned, kTight)) << "step " << step;
  }
}

TEST(AdamSolver, IsPlainAdamBeforeItHasFactors) {
  Inverse a({4}, support::test_options(at::kDouble), Solver::kAdam);
  Inverse g({2}, support::test_options(at::kDouble), Solver::kAdam);
  BasisMoments moments = moments_for({1, 2, 4}, Solver::kAdam);
  const at::Tensor gradient = normal(1, {1, 2, 4});
  const at::Tensor update =
      solved(gradient, a, g, {Solver::kAdam, Damping::kPi, 0, kNumbers}, &moments);
  EXPECT_TRUE(near_within(update, gradient / (gradient.abs() + kNumbers.epsilon), kTight));
}

TEST(AdamSolver, AGradientThatIsNotFiniteIsShownAndDoesNotStayInTheMoments) {
  Inverse a = basis_of(as_factor({random_factor(1, 2)}), {2}, Solver::kAdam);
  Inverse g = basis_of(as_factor({random_factor(2, 2)}), {2}, Solver::kAdam);
  BasisMoments moments = moments_for({1, 2, 2}, Solver::kAdam);
  at::Tensor gradient = normal(3, {1, 2, 2});
  gradient[0][1][0] = std::numeric_limits<double>::infinity();
  const BasisRule rule{Solver::kAdam, Damping::kPi, 0, kNumbers};
  EXPECT_TRUE(solved(gradient, a, g, rule, &moments).isnan().all().item<bool>());
  EXPECT_TRUE(moments.first.eq(0).all().item<bool>());
  EXPECT_TRUE(moments.second.eq(0).all().item<bool>());
  EXPECT_TRUE(solved(normal(4, {1, 2, 2}), a, g, rule, &moments).isfinite().all().item<bool>());
}

// The second moments, scaled so that their mean is that of the products of eigenvalues, stand in
// the place of these; here by the full matrix of the eigenvectors.
TEST(EkfacSolver, PutsSecondMomentsInPlaceOfTheProductsOfEigenvalues) {
  const at::Tensor factor_a = random_factor(1, 4);
  const at::Tensor factor_g = random_factor(2, 3);
  Inverse a = basis_of(as_factor({factor_a}), {4}, Solver::kEkfac);
  Inverse g = basis_of(as_factor({factor_g}), {3}, Solver::kEkfac);
  BasisMoments moments = moments_for({1, 3, 4}, Solver::kEkfac);
  const BasisRule rule{Solver::kEkfac, Damping::kPi, 0.2, kNumbers};
  const at::Tensor all = support::kronecker(to_host(a.value[0]), to_host(g.value[0]));
  at::Tensor squares = at::zeros({12}, at::kDouble);
  at::Tensor gradient;
  for (std::uint64_t step = 0; step < 3; ++step) {
    gradient = normal(20 + step, {3, 4});
    kfac::observe(to_device(gradient.unsqueeze(0), at::kDouble), {a, g, &moments}, rule);
    const at::Tensor inside = all.t().matmul(support::stacked_columns(gradient));
    squares = kNumbers.beta2 * squares + (1 - kNumbers.beta2) * inside.square();
  }
  squares = squares / (1 - std::pow(kNumbers.beta2, 3));
  const at::Tensor means = to_host(a.eigenvalues).mean() * to_host(g.eigenvalues).mean();
  const at::Tensor curvature =
      all.matmul((squares * means / squares.mean() + 0.2).diag()).matmul(all.t());
  const at::Tensor wanted = support::unstacked_columns(
      at::linalg_solve(curvature, support::stacked_columns(gradient)), 3);
  EXPECT_TRUE(near_within(solved(gradient.unsqueeze(0), a, g, rule, &moments)[0], wanted, kTight));
}

}  // namespace
}  // namespace spdkfac
