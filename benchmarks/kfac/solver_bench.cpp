// SPDX-License-Identifier: Apache-2.0
// What each solver makes of a factor in a refresh, and of a gradient in a step.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include "spdkfac/kfac/eigen_precondition.h"
#include "spdkfac/kfac/eigenbasis.h"
#include "spdkfac/kfac/precondition.h"

namespace spdkfac {
namespace {

at::Tensor random_factor(std::int64_t dim) {
  const at::Tensor rows = at::randn({2 * dim, dim});
  return (at::mm(rows.t(), rows) / static_cast<double>(2 * dim)).unsqueeze(0);
}

void refresh(benchmark::State& state, Solver solver) {
  const std::int64_t dim = state.range(0);
  const at::Tensor factor = random_factor(dim);
  const at::Tensor damping = at::full({1}, 0.01);
  kfac::Inverse result({dim}, factor.options(), solver);
  for (auto _ : state) {
    if (keeps_basis(solver)) {
      kfac::refresh_basis(factor, result);
      result.turned.reset();
    } else {
      kfac::refresh_inverse(factor, damping, result);
    }
  }
}

// A square gradient, whose factors have as many rows.
void step(benchmark::State& state, Solver solver) {
  const std::int64_t dim = state.range(0);
  const at::Tensor gradient = at::randn({1, dim, dim});
  const at::Tensor factor = random_factor(dim);
  kfac::Inverse a({dim}, factor.options(), solver);
  kfac::Inverse g({dim}, factor.options(), solver);
  const at::Tensor scratch = at::empty_like(gradient);
  const at::Tensor out = at::empty_like(gradient);
  if (!keeps_basis(solver)) {
    for (auto _ : state) kfac::precondition(gradient, a.value, g.value, scratch, out);
    return;
  }
  kfac::refresh_basis(factor, a);
  kfac::refresh_basis(factor, g);
  kfac::BasisMoments moments(gradient.sizes(), gradient.options(), solver);
  const kfac::LayerBasis layer{a, g, keeps_moments(solver) ? &moments : nullptr};
  const kfac::BasisRule rule{solver, Damping::kRelative, 0.01};
  for (auto _ : state) {
    if (solver == Solver::kEkfac) kfac::observe(gradient, layer, rule);
    kfac::precondition_in_basis(gradient, layer, rule, out);
  }
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->Arg(128)->Arg(512)->Arg(1024)->Unit(benchmark::kMillisecond)->UseRealTime();
}

BENCHMARK_CAPTURE(refresh, inverse, Solver::kInverse)->Apply(shapes);
BENCHMARK_CAPTURE(refresh, eigen, Solver::kEigen)->Apply(shapes);
BENCHMARK_CAPTURE(refresh, adam, Solver::kAdam)->Apply(shapes);
BENCHMARK_CAPTURE(step, inverse, Solver::kInverse)->Apply(shapes);
BENCHMARK_CAPTURE(step, eigen, Solver::kEigen)->Apply(shapes);
BENCHMARK_CAPTURE(step, ekfac, Solver::kEkfac)->Apply(shapes);
BENCHMARK_CAPTURE(step, adam, Solver::kAdam)->Apply(shapes);

}  // namespace
}  // namespace spdkfac
