// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include "spdkfac/calibrate/computation.h"
#include "spdkfac/kfac/factor.h"
#include "spdkfac/kfac/inverse.h"
#include "spdkfac/kfac/inverse_batch.h"
#include "spdkfac/kfac/precondition.h"
#include "spdkfac/kfac/symmetric.h"
#include "spdkfac/plan/layer_spec.h"

namespace spdkfac::calibrate {
namespace {

// Layers of ResNets at 224x224: with each kernel, early and late in the network.
struct Shape {
  const char* name;
  std::int64_t inputs, outputs, kernel, size;  // size 0: Linear
  std::int64_t features() const { return inputs * kernel * kernel; }
  std::int64_t positions() const { return size == 0 ? 1 : size * size; }
};
constexpr std::array kShapes{
    Shape{"3x3 of 64 channels at 56x56", 64, 64, 3, 56},
    Shape{"1x1 of 256 channels at 56x56", 256, 64, 1, 56},
    Shape{"3x3 of 256 channels at 14x14", 256, 256, 3, 14},
    Shape{"linear of 512 features", 512, 1000, 1, 0},
};
// Factors that travel: small, middle and large.
constexpr std::array<std::int64_t, 3> kPackedDims{256, 576, 1152};
// Operations started at once, as a layer's backward pass does at most.
constexpr int kStarts = 16;

// Numbers as networks have them, and a random generator of our own: training goes on with torch's
// as if nothing had happened.
class Numbers {
 public:
  explicit Numbers(c10::Device device)
      : device_(device), generator_(at::detail::createCPUGenerator(/*seed_val=*/1)) {}

  at::Tensor normal(at::IntArrayRef sizes) {
    return at::randn(sizes, generator_, at::TensorOptions().dtype(at::kFloat)).to(device_);
  }
  // [1, d, d], symmetric, eigenvalues near 1.
  at::Tensor well_conditioned(std::int64_t dim) {
    at::Tensor matrix = normal({dim, dim}).mul_(0.1 / std::sqrt(static_cast<double>(dim)));
    matrix = matrix + matrix.t();
    matrix.diagonal().add_(1);
    return matrix.unsqueeze(0);
  }

 private:
  c10::Device device_;
  at::Generator generator_;
};

// As training inverts one factor of its own: on a GPU as a graph.
std::function<void()> inversion(const at::Tensor& factor) {
  const at::Tensor damping = at::full({1}, 0.01, factor.options());
  const auto inverse =
      std::make_shared<kfac::Inverse>(FactorShape{factor.size(-1)}, factor.options());
  if (!factor.is_cuda()) return [=] { kfac::refresh_inverse(factor, damping, *inverse); };
  const std::vector<kfac::InverseBatch::Task> tasks = {{factor, inverse.get()}};
  const auto batch = std::make_shared<kfac::InverseBatch>(tasks, Precision::kTf32);
  return [=, kept = inverse] { batch->refresh(damping); };
}

ComputeTask inverse_task(Numbers& numbers, std::int64_t dim) {
  return {Part::kInverse,
          static_cast<double>(dim),
          {fmt::format("inverse of dimension {}", dim), inversion(numbers.well_conditioned(dim))}};
}

ComputeTask forward_task(const Shape& shape, const at::Tensor& input, const at::Tensor& weight,
                         std::int64_t batch) {
  const double flops = 2.0 * static_cast<double>(shape.features()) *
                       static_cast<double>(shape.outputs * shape.positions() * batch);
  const std::string name = fmt::format("forward, {}", shape.name);
  if (shape.size == 0) return {Part::kForward, flops, {name, [=] { at::linear(input, weight); }}};
  const std::int64_t padding = shape.kernel / 2;
  return {
      Part::kForward, flops, {name, [=] { at::conv2d(input, weight, {}, /*stride=*/1, padding); }}};
}

ComputeTask factor_task(const Shape& shape, const at::Tensor& input, std::int64_t batch) {
  std::optional<kfac::ConvGeometry> conv;
  if (shape.size > 0) {
    conv.emplace();
    conv->kernel = {shape.kernel, shape.kernel};
    conv->padding = {shape.kernel / 2, shape.kernel / 2};
  }
  const kfac::LayerUse use = kfac::layer_use(input, conv, /*bias=*/false);
  at::Tensor sum = at::zeros({1, shape.features(), shape.features()}, input.options());
  const double dim = static_cast<double>(shape.features());
  return {Part::kFactor,
          2.0 * dim * dim * static_cast<double>(shape.positions() * batch),
          {fmt::format("factor, {}", shape.name), [=]() mutable {
             kfac::add_input_products(input, use, 1.0 / static_cast<double>(batch),
                                      kDefaultPatchMemory, sum, /*overwrite=*/true);
           }}};
}

ComputeTask precondition_task(Numbers& numbers, const Shape& shape) {
  const std::int64_t rows = shape.outputs;
  const std::int64_t columns = shape.features();
  const at::Tensor gradient = numbers.normal({1, rows, columns});
  const at::Tensor inverse_a = numbers.well_conditioned(columns);
  const at::Tensor inverse_g = numbers.well_conditioned(rows);
  const at::Tensor scratch = at::empty_like(gradient);
  const at::Tensor out = at::empty_like(gradient);
  return {Part::kPrecondition,
          2.0 * static_cast<double>(rows) * static_cast<double>(columns) *
              static_cast<double>(rows + columns),
          {fmt::format("precondition, {}", shape.name),
           [=] { kfac::precondition(gradient, inverse_a, inverse_g, scratch, out); }}};
}

void add_packing(std::vector<ComputeTask>& tasks, Numbers& numbers, std::int64_t dim) {
  const at::Tensor matrix = numbers.well_conditioned(dim);
  const at::Tensor packed = at::zeros({packed_elements(dim)}, matrix.options());
  const auto elements = static_cast<double>(packed.numel());
  tasks.push_back({Part::kPack, elements, {fmt::format("pack dimension {}", dim), [=] {
                                             kfac::pack_upper(matrix, packed, 0.5);
                                           }}});
  tasks.push_back({Part::kUnpack, elements, {fmt::format("unpack dimension {}", dim), [=] {
                                               kfac::unpack_upper(packed, matrix);
                                             }}});
}

ComputeTask start_task(Communicator& communicator, c10::Device device) {
  struct Burst {
    std::vector<at::Tensor> tensors;
    std::vector<Work> works;
  };
  const auto burst = std::make_shared<Burst>();
  for (int i = 0; i < kStarts; ++i) {
    burst->tensors.push_back(at::zeros({64}, at::TensorOptions().device(device)));
  }
  Task task{.name = "start operations", .run = [&communicator, burst] {
              for (const at::Tensor& tensor : burst->tensors) {
                burst->works.push_back(communicator.all_reduce_async(tensor, "calibrate: start"));
              }
            }};
  task.finish = [burst] {
    for (const Work& work : burst->works) work.wait();
    burst->works.clear();
  };
  // The communication thread may take the core meanwhile; that counts as slower computation
  // (contention.h), not here once more.
  task.own_time = true;
  return {Part::kStart, kStarts, std::move(task)};
}

}  // namespace

std::vector<ComputeTask> compute_tasks(Communicator& communicator, c10::Device device,
                                       const std::vector<std::int64_t>& dims, std::int64_t batch) {
  Numbers numbers(device);
  std::vector<ComputeTask> tasks;
  for (const std::int64_t dim : dims) tasks.push_back(inverse_task(numbers, dim));
  for (const Shape& shape : kShapes) {
    const bool linear = shape.size == 0;
    const at::Tensor input = linear ? numbers.normal({batch, shape.inputs})
                                    : numbers.normal({batch, shape.inputs, shape.size, shape.size});
    const at::Tensor weight =
        linear ? numbers.normal({shape.outputs, shape.inputs})
               : numbers.normal({shape.outputs, shape.inputs, shape.kernel, shape.kernel});
    tasks.push_back(forward_task(shape, input, weight, batch));
    tasks.push_back(factor_task(shape, input, batch));
    tasks.push_back(precondition_task(numbers, shape));
  }
  for (const std::int64_t dim : kPackedDims) add_packing(tasks, numbers, dim);
  tasks.push_back(start_task(communicator, device));
  return tasks;
}

}  // namespace spdkfac::calibrate
