// SPDX-License-Identifier: Apache-2.0
// Every kernel of kfac/cuda on a GPU, with its rate and the share of what this GPU reaches in a
// plain copy or in a large product of the same arithmetic.
#include <functional>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/Sleep.h>
#include <benchmark/benchmark.h>
#include <c10/cuda/CUDAFunctions.h>

#include "spdkfac/kfac/cuda/shifts_cuda.h"
#include "spdkfac/kfac/cuda/split_product.h"
#include "spdkfac/kfac/inverse_batch.h"
#include "spdkfac/kfac/precision.h"
#include "spdkfac/kfac/precondition.h"
#include "spdkfac/kfac/precondition_batch.h"
#include "spdkfac/kfac/running_average.h"
#include "spdkfac/kfac/shifts.h"
#include "spdkfac/kfac/symmetric.h"

namespace spdkfac {
namespace {

const at::TensorOptions kFloats = at::TensorOptions(at::kCUDA).dtype(at::kFloat);

// What the GPU alone takes: it sleeps until the host has queued everything.
double seconds_of(const std::function<void()>& run) {
  constexpr std::int64_t kCycles = 500'000;
  at::cuda::CUDAEvent begin(cudaEventDefault);
  at::cuda::CUDAEvent end(cudaEventDefault);
  at::cuda::sleep(kCycles);
  begin.record();
  run();
  end.record();
  end.synchronize();
  return begin.elapsed_time(end) * 1e-3;
}

// The least of some runs, after one to warm up.
double best_seconds(const std::function<void()>& run) {
  run();
  double best = seconds_of(run);
  for (int index = 0; index < 10; ++index) best = std::min(best, seconds_of(run));
  return best;
}

// A plain copy that moves as many bytes in all.
double copied_bytes_per_second(double bytes) {
  const at::Tensor from = at::ones({static_cast<std::int64_t>(bytes / 8)}, kFloats);
  at::Tensor to = at::empty_like(from);
  return bytes / best_seconds([&] { to.copy_(from); });
}

double flops_per_second(Precision precision) {
  const PrecisionGuard guard(precision, kFloats.device());
  const std::int64_t size = 8192;
  const at::Tensor left = at::randn({size, size}, kFloats);
  at::Tensor out = at::empty_like(left);
  const auto count = static_cast<double>(size);
  return 2 * count * count * count / best_seconds([&] { at::mm_out(out, left, left); });
}

double tf32_flops_per_second() {
  static const double rate = flops_per_second(Precision::kTf32);
  return rate;
}

double fp32_flops_per_second() {
  static const double rate = flops_per_second(Precision::kFp32);
  return rate;
}

// Times `run` by events of the GPU; `amount` is in bytes or operations, `limit` in these a second.
void measure(benchmark::State& state, const char* unit, double amount, double limit,
             const std::function<void()>& run) {
  run();
  run();  // what is recorded as a graph is recorded now
  run();
  double total = 0;
  for (auto _ : state) {
    const double seconds = seconds_of(run);
    state.SetIterationTime(seconds);
    total += seconds;
  }
  const double rate = amount * static_cast<double>(state.iterations()) / total;
  state.counters[unit] =
      benchmark::Counter(rate, benchmark::Counter::kDefaults, benchmark::Counter::OneK::kIs1000);
  state.counters["of the limit"] = rate / limit;
}

void measure_bytes(benchmark::State& state, double bytes, const std::function<void()>& run) {
  measure(state, "B/s", bytes, copied_bytes_per_second(bytes), run);
}

// Of a packed triangle of floats.
double triangle_bytes(std::int64_t dim) {
  return 4 * static_cast<double>(dim) * static_cast<double>(dim + 1) / 2;
}

// A message of several triangles.
void pack(benchmark::State& state) {
  const std::int64_t dim = state.range(0);
  const std::int64_t count = state.range(1);
  const std::int64_t elements = dim * (dim + 1) / 2;
  const at::Tensor matrices = at::randn({count, dim, dim}, kFloats);
  const at::Tensor message = at::empty({count * elements}, kFloats);
  std::vector<kfac::Triangle> triangles;
  for (std::int64_t i = 0; i < count; ++i) {
    triangles.push_back({matrices[i], message.narrow(0, i * elements, elements), 0.5});
  }
  measure_bytes(state, 2 * static_cast<double>(count) * triangle_bytes(dim),
                [&] { kfac::pack_upper(triangles); });
}

void unpack(benchmark::State& state) {
  const std::int64_t dim = state.range(0);
  const at::Tensor matrix = at::empty({dim, dim}, kFloats);
  const at::Tensor packed = at::randn({dim * (dim + 1) / 2}, kFloats);
  measure_bytes(state, 3 * triangle_bytes(dim), [&] { kfac::unpack_upper(packed, matrix); });
}

// Eight factors at once: reads sums and averages, writes averages, upper triangles alone.
void average(benchmark::State& state) {
  const std::int64_t dim = state.range(0);
  const at::Tensor sums = at::randn({8, 1, dim, dim}, kFloats);
  std::vector<kfac::RunningAverage> averages;
  for (int i = 0; i < 8; ++i) averages.emplace_back(FactorShape{dim}, 0.95, false, kFloats);
  std::vector<kfac::RunningAverage::Addition> additions;
  for (std::int64_t i = 0; i < 8; ++i) {
    additions.push_back({&averages[static_cast<std::size_t>(i)], sums[i], 1.0});
  }
  measure_bytes(state, 8 * 3 * triangle_bytes(dim),
                [&] { kfac::RunningAverage::add_all(additions); });
}

void scale(benchmark::State& state) {
  std::vector<at::Tensor> gradients;
  for (int i = 0; i < 50; ++i) gradients.push_back(at::ones({state.range(0)}, kFloats));
  const at::Tensor factor = at::ones({50}, kFloats.dtype(at::kDouble));
  const at::Tensor bad = at::zeros({}, kFloats.dtype(at::kBool));
  const double bytes = 50.0 * 8 * static_cast<double>(state.range(0));
  measure_bytes(state, bytes, [&] { kfac::scale_or_clear(gradients, {}, factor, bad); });
}

// Copies there and back, two products of tf32 and the sum, as one replayed graph.
void precondition(benchmark::State& state) {
  const std::int64_t rows = state.range(0);
  const std::int64_t columns = state.range(1);
  std::vector<kfac::PreconditionBatch::Task> tasks;
  std::vector<kfac::PreconditionBatch::Gradients> gradients;
  for (int i = 0; i < 16; ++i) {
    tasks.push_back({at::randn({1, columns, columns}, kFloats) * 1e-3,
                     at::randn({1, rows, rows}, kFloats) * 1e-3});
    gradients.push_back({at::randn({rows, columns}, kFloats), at::Tensor()});
  }
  kfac::PreconditionBatch batch(tasks, Precision::kTf32);
  const double flops = 16 * 2.0 * static_cast<double>(rows * columns * (rows + columns));
  measure(state, "FLOP/s", flops, tf32_flops_per_second(), [&] { batch.run(gradients); });
}

// Operations of one product in fp32, beside what such a product reaches.
void split_product(benchmark::State& state) {
  const std::int64_t size = state.range(0);
  const at::Tensor left = at::randn({1, size, size}, kFloats);
  const at::Tensor out = at::empty_like(left);
  const kfac::SplitProduct product(6 * size * size,
                                   at::Device(at::kCUDA, c10::cuda::current_device()));
  const auto count = static_cast<double>(size);
  measure(state, "FLOP/s", 2 * count * count * count, fp32_flops_per_second(),
          [&] { product.multiply(out, left, left, 0, 1, {}); });
}

// Load, leaves, products and store; d³ operations for each inverse of d rows.
void inverses(benchmark::State& state) {
  const std::int64_t dim = state.range(0);
  const std::int64_t count = state.range(1);
  const at::Tensor rows = at::randn({count, dim, dim / 2 + 1}, kFloats);
  const at::Tensor factor =
      at::bmm(rows, rows.mT()) / static_cast<double>(dim) + at::eye(dim, kFloats);
  kfac::Inverse inverse({dim, count}, kFloats);
  kfac::InverseBatch batch({{factor, &inverse}}, Precision::kTf32);
  const at::Tensor damping = at::zeros({count}, kFloats);
  const auto size = static_cast<double>(dim);
  measure(state, "FLOP/s", static_cast<double>(count) * size * size * size, fp32_flops_per_second(),
          [&] { batch.refresh(damping); });
}

// Images of 32 examples, channels last, whose kernel is 3x3: the four edges' patches, or the whole
// factor.
at::Tensor images_of(const benchmark::State& state) {
  return at::randn({32, state.range(0), state.range(1), state.range(1)}, kFloats)
      .contiguous(at::MemoryFormat::ChannelsLast);
}

void edges(benchmark::State& state) {
  const at::Tensor images = images_of(state);
  const std::int64_t side = state.range(1);
  const std::vector<kfac::EdgePatches> all = {{{-2, -2}, {1, side + 2}, {1, 3}},
                                              {{side, -2}, {1, side + 2}, {1, 3}},
                                              {{-1, -2}, {side, 1}, {3, 1}},
                                              {{-1, side}, {side, 1}, {3, 1}}};
  const double bytes =
      2 * static_cast<double>(kfac::gather_edges_cuda(images, all, {1, 1}).nbytes());
  measure_bytes(state, bytes, [&] { kfac::gather_edges_cuda(images, all, {1, 1}); });
}

// Operations of half a product of patches, which this does not make.
void shifts(benchmark::State& state) {
  const at::Tensor images = images_of(state);
  const std::int64_t dim = 9 * state.range(0);
  const at::Tensor sum = at::empty({dim, dim}, kFloats);
  const kfac::ConvGeometry conv{.kernel = {3, 3}, .padding = {1, 1}};
  const PrecisionGuard guard(Precision::kTf32, kFloats.device());
  const double flops = static_cast<double>(dim) * static_cast<double>(dim) *
                       static_cast<double>(32 * state.range(1) * state.range(1));
  measure(state, "FLOP/s", flops, tf32_flops_per_second(),
          [&] { kfac::add_shift_products(images, conv, 1, sum, true); });
}

void timed(benchmark::internal::Benchmark* bench) {
  bench->UseManualTime()->Unit(benchmark::kMicrosecond)->Iterations(200);
}

BENCHMARK(pack)
    ->Args({512, 1})
    ->Args({512, 64})
    ->Args({1024, 32})
    ->Args({2048, 8})
    ->Args({2304, 6})
    ->Args({4608, 1})
    ->Args({4608, 3})
    ->Apply(timed);
BENCHMARK(unpack)->Arg(512)->Arg(1024)->Arg(2048)->Arg(4608)->Apply(timed);
BENCHMARK(average)->Arg(512)->Arg(2048)->Apply(timed);
BENCHMARK(scale)->Arg(1 << 14)->Arg(1 << 20)->Apply(timed);
BENCHMARK(precondition)->Args({256, 256})->Args({512, 2304})->Args({512, 4608})->Apply(timed);
BENCHMARK(split_product)->Arg(384)->Arg(1024)->Arg(2304)->Apply(timed);
BENCHMARK(inverses)->Args({64, 64})->Args({512, 16})->Args({2304, 6})->Args({4608, 3})->Apply(
    timed);
BENCHMARK(edges)->Args({64, 56})->Args({256, 14})->Apply(timed);
BENCHMARK(shifts)->Args({64, 56})->Args({256, 14})->Apply(timed);

}  // namespace
}  // namespace spdkfac
