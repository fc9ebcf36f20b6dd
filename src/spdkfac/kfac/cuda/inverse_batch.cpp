// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/inverse_batch.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "spdkfac/base/check.h"
#include "spdkfac/kfac/block_inverse.h"
#include "spdkfac/kfac/cuda/inverse_kernels.h"
#include "spdkfac/kfac/cuda/lanes.h"
#include "spdkfac/kfac/cuda/split_product.h"
#include "spdkfac/kfac/graphed_work.h"
#include "spdkfac/kfac/side_streams.h"

namespace spdkfac::kfac {
namespace {

// Dimensions are rounded up to this, so that more factors share a batch and products are aligned.
constexpr std::int64_t kRounding = 64;
// The grid's limit for matrices of a batch.
constexpr std::int64_t kMaxBatch = 65535;

// Matrices of one padded dimension.
struct Batch {
  std::int64_t padded = 0;
  std::int64_t size = 0;
  at::Tensor entries;  // InverseEntry for each, as bytes
  at::Tensor work;     // [size, padded, padded]
  at::Tensor scratch;
  at::Tensor scales;
  at::Tensor dampings;
  at::Tensor diagonal;
  at::Tensor states;

  // A rough time for this batch alone: arithmetic, and the chain of leaves and small products.
  double cost() const {
    const auto rows = static_cast<double>(padded);
    return static_cast<double>(size) * rows * rows * rows / 8e13 + rows / 128 * 1.2e-4;
  }
};

// Products of such blocks are faster split into halves than in fp32.
constexpr std::int64_t kSplitRows = 128;
// Matrices of a batch that are split and multiplied together: more memory, fewer and fuller
// launches.
constexpr std::int64_t kSplitAtOnce = 3;

bool worth_splitting(const at::Tensor& left, const at::Tensor& right) {
  return std::min({left.size(-2), left.size(-1), right.size(-1)}) >= kSplitRows;
}

// `split` may be null.
template <class Scalar>
void queue(const Batch& batch, const SplitProduct* split) {
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
  const auto* entries =
      reinterpret_cast<const InverseEntry<Scalar>*>(batch.entries.const_data_ptr<std::uint8_t>());
  auto* work = batch.work.mutable_data_ptr<Scalar>();
  auto* diagonal = batch.diagonal.mutable_data_ptr<Scalar>();
  auto* states = batch.states.mutable_data_ptr<std::int32_t>();
  C10_CUDA_CHECK(launch_load_damped(
      entries, batch.size, batch.padded, work, batch.scales.mutable_data_ptr<Scalar>(),
      batch.dampings.mutable_data_ptr<Scalar>(), diagonal, states, stream));
  invert_blocks(
      batch.work, kInverseLeaf<Scalar>, batch.scratch,
      [&](std::int64_t begin, std::int64_t size) {
        C10_CUDA_CHECK(launch_factor_leaf(work, diagonal, batch.size, batch.padded, begin, size,
                                          states, stream));
      },
      [&](const at::Tensor& out, const at::Tensor& left, const at::Tensor& right, double beta,
          double alpha, BlockKinds kinds) {
        if (split && worth_splitting(left, right)) {
          split->multiply(out, left, right, beta, alpha, kinds);
        } else {
          multiply_batches(out, left, right, beta, alpha, kinds);
        }
      });
  C10_CUDA_CHECK(launch_store_inverse(entries, batch.size, batch.padded, work,
                                      batch.scales.const_data_ptr<Scalar>(), states, stream));
}

}  // namespace

class InverseBatch::Impl {
 public:
  Impl(const std::vector<Task>& tasks, Precision precision)
      : precision_(precision),
        device_(tasks.front().factor.device()),
        graph_([this] { queue_all(); }) {
    std::int64_t count = 0;
    for (const Task& task : tasks) count += task.factor.size(0);
    const at::TensorOptions options = tasks.front().factor.options();
    failures_ = at::zeros({count}, options.dtype(at::kInt));
    kept_ = at::zeros({count}, options.dtype(at::kBool));
    damping_ = at::zeros({count}, options);
    std::int64_t first = 0;
    for (const Task& task : tasks) {
      factors_.push_back(task.factor);
      SPDKFAC_CHECK(task.factor.is_contiguous() && task.inverse->value.stride(2) == 1 &&
                        task.factor.sizes() == task.inverse->value.sizes() &&
                        task.factor.dtype() == options.dtype(),
                    "factors to invert together differ in type, or lie in pieces");
      const std::int64_t groups = task.factor.size(0);
      task.inverse->failures = failures_.narrow(0, first, groups);
      task.inverse->kept = kept_.narrow(0, first, groups);
      first += groups;
    }
    AT_DISPATCH_FLOATING_TYPES(options.dtype().toScalarType(), "InverseBatch",
                               [&] { make_batches<scalar_t>(tasks); });
    spread();
  }

  void refresh(const at::Tensor& damping) {
    const c10::NoGradGuard no_grad;
    const c10::cuda::CUDAGuard guard(device_);
    damping_.copy_(damping);
    graph_.run();
  }

  const at::Tensor& failures() const { return failures_; }
  const at::Tensor& kept() const { return kept_; }
  Bytes buffer_bytes() const {
    std::int64_t bytes = 0;
    for (const Batch& batch : batches_) {
      bytes += static_cast<std::int64_t>(batch.work.nbytes() + batch.scratch.nbytes());
    }
    for (const std::optional<SplitProduct>& split : splits_) {
      if (split) bytes += split->bytes();
    }
    return Bytes(bytes);
  }

 private:
  template <class Scalar>
  void make_batches(const std::vector<Task>& tasks) {
    std::map<std::int64_t, std::vector<InverseEntry<Scalar>>> by_size;
    std::int64_t first = 0;
    for (const Task& task : tasks) {
      const std::int64_t dim = task.factor.size(1);
      const at::Tensor& value = task.inverse->value;
      for (std::int64_t group = 0; group < task.factor.size(0); ++group, ++first) {
        by_size[(dim + kRounding - 1) / kRounding * kRounding].push_back(
            {.factor = task.factor.const_data_ptr<Scalar>() + group * dim * dim,
             .value = value.mutable_data_ptr<Scalar>() + group * value.stride(0),
             .damping = damping_.const_data_ptr<Scalar>() + first,
             .failures = failures_.mutable_data_ptr<std::int32_t>() + first,
             .kept = kept_.mutable_data_ptr<bool>() + first,
             .dim = static_cast<std::int32_t>(dim),
             .value_step = static_cast<std::int32_t>(value.stride(1))});
      }
    }
    const at::TensorOptions options = damping_.options();
    for (auto& [padded, entries] : by_size) {
      const auto size = static_cast<std::int64_t>(entries.size());
      SPDKFAC_CHECK(size <= kMaxBatch, "more matrices than one kernel takes");
      const auto bytes = static_cast<std::int64_t>(entries.size() * sizeof(entries.front()));
      batches_.push_back(
          {.padded = padded,
           .size = size,
           .entries = at::from_blob(entries.data(), {bytes}, at::kByte).to(device_),
           .work = at::empty({size, padded, padded}, options),
           .scratch = at::empty({size * block_scratch(padded, kInverseLeaf<Scalar>)}, options),
           .scales = at::empty({size}, options),
           .dampings = at::empty({size}, options),
           .diagonal = at::empty({size, padded}, options),
           .states = at::zeros({size}, options.dtype(at::kInt))});
    }
  }

  // Batches of a lane run one after the other, and share room for operands of products.
  void spread() {
    std::vector<double> costs;
    for (const Batch& batch : batches_) costs.push_back(batch.cost());
    lanes_ = spread_over_lanes(costs);
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      std::int64_t room = 0;
      for (const std::size_t index : lanes_[lane]) {
        const Batch& batch = batches_[index];
        if (precision_ != Precision::kTf32 || batch.work.scalar_type() != at::kFloat ||
            batch.padded < 2 * kSplitRows) {
          continue;
        }
        const std::int64_t half = batch.padded / 2 + 2 * kInverseLeaf<float>;  // or less
        const std::int64_t at_once = std::min(batch.size, kSplitAtOnce);
        room = std::max(room, at_once * 3 * half * batch.padded);
      }
      if (room > 0) splits_[lane].emplace(room, device_);
    }
  }

  void queue_all() {
    const PrecisionGuard precise(Precision::kFp32, device_);  // but for what is split
    const std::size_t lanes = std::min(kLanes, batches_.size());
    streams_.run(device_, lanes, [&](std::size_t lane) {
      const SplitProduct* split = splits_[lane] ? &*splits_[lane] : nullptr;
      for (const std::size_t index : lanes_[lane]) {
        AT_DISPATCH_FLOATING_TYPES(damping_.scalar_type(), "InverseBatch",
                                   [&] { queue<scalar_t>(batches_[index], split); });
      }
    });
  }

  Precision precision_;
  at::Device device_;
  std::vector<at::Tensor> factors_;  // kept alive
  at::Tensor failures_;
  at::Tensor kept_;
  at::Tensor damping_;
  std::vector<Batch> batches_;
  std::array<std::vector<std::size_t>, kLanes> lanes_;
  std::array<std::optional<SplitProduct>, kLanes> splits_;
  SideStreams streams_;
  GraphedWork graph_;
};

InverseBatch::InverseBatch(const std::vector<Task>& tasks, Precision precision)
    : impl_(std::make_unique<Impl>(tasks, precision)) {}
InverseBatch::~InverseBatch() = default;
InverseBatch::InverseBatch(InverseBatch&&) noexcept = default;
InverseBatch& InverseBatch::operator=(InverseBatch&&) noexcept = default;
void InverseBatch::refresh(const at::Tensor& damping) { impl_->refresh(damping); }
const at::Tensor& InverseBatch::failures() const { return impl_->failures(); }
const at::Tensor& InverseBatch::kept() const { return impl_->kept(); }
Bytes InverseBatch::buffer_bytes() const { return impl_->buffer_bytes(); }

}  // namespace spdkfac::kfac
