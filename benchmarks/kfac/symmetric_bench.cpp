// SPDX-License-Identifier: Apache-2.0
// The product that makes factors beside a full one, the packed triangle beside a copy.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include "spdkfac/kfac/symmetric.h"

namespace spdkfac {
namespace {

void report_flops(benchmark::State& state) {
  const auto dim = static_cast<double>(state.range(0));
  const auto columns = static_cast<double>(state.range(1));
  // Of a full product, so that the rates of both can be compared.
  state.counters["full FLOP/s"] =
      benchmark::Counter(2 * dim * dim * columns, benchmark::Counter::kIsIterationInvariantRate,
                         benchmark::Counter::OneK::kIs1000);
}

void gram(benchmark::State& state) {
  const at::Tensor rows = at::randn({state.range(0), state.range(1)});
  const at::Tensor sum = at::zeros({state.range(0), state.range(0)});
  for (auto _ : state) kfac::add_gram(rows, 1, sum);
  report_flops(state);
}

void full_product(benchmark::State& state) {
  const at::Tensor rows = at::randn({state.range(0), state.range(1)});
  at::Tensor sum = at::zeros({state.range(0), state.range(0)});
  for (auto _ : state) sum.addmm_(rows, rows.t());
  report_flops(state);
}

void pack(benchmark::State& state) {
  const std::int64_t dim = state.range(0);
  const at::Tensor matrix = at::randn({dim, dim});
  const at::Tensor packed = at::empty({dim * (dim + 1) / 2});
  for (auto _ : state) kfac::pack_upper(matrix, packed);
  state.SetBytesProcessed(state.iterations() * 2 * static_cast<std::int64_t>(packed.nbytes()));
}

void unpack(benchmark::State& state) {
  const std::int64_t dim = state.range(0);
  const at::Tensor matrix = at::randn({dim, dim});
  const at::Tensor packed = at::randn({dim * (dim + 1) / 2});
  for (auto _ : state) kfac::unpack_upper(packed, matrix);
  state.SetBytesProcessed(state.iterations() * 3 * static_cast<std::int64_t>(packed.nbytes()));
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgsProduct({{144, 288, 576, 1152, 2304}, {32, 512, 2048}})
      ->Unit(benchmark::kMicrosecond)
      ->UseRealTime();
}

BENCHMARK(gram)->Apply(shapes);
BENCHMARK(full_product)->Apply(shapes);
BENCHMARK(pack)->Arg(512)->Arg(2048)->Unit(benchmark::kMicrosecond);
BENCHMARK(unpack)->Arg(512)->Arg(2048)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace spdkfac
