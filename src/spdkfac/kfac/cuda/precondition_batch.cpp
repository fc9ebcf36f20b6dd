// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/precondition_batch.h"

#include <algorithm>
#include <array>
#include <limits>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "spdkfac/base/check.h"
#include "spdkfac/kfac/aligned.h"
#include "spdkfac/kfac/cuda/gradient_kernels.h"
#include "spdkfac/kfac/cuda/graft_kernels.h"
#include "spdkfac/kfac/cuda/in_parts.h"
#include "spdkfac/kfac/cuda/lanes.h"
#include "spdkfac/kfac/graphed_work.h"
#include "spdkfac/kfac/precondition.h"
#include "spdkfac/kfac/side_streams.h"

namespace spdkfac::kfac {
namespace {

// Matrices begin at multiples of this many elements, as products like them.
constexpr std::int64_t kAlignment = 64;
// The grid's limit.
constexpr std::int64_t kMaxLayers = 65535;

using Shape = std::array<std::int64_t, 3>;

// The inverses by the side of a gradient's matrix they are multiplied to.
const at::Tensor& of_rows(const PreconditionBatch::Task& task) {
  return task.rows_are_inputs ? task.inverse_a : task.inverse_g;
}
const at::Tensor& of_columns(const PreconditionBatch::Task& task) {
  return task.rows_are_inputs ? task.inverse_g : task.inverse_a;
}

// Of a gradient's matrices with their margins.
Shape shape_of(const PreconditionBatch::Task& task) {
  return {of_rows(task).size(0), with_margin(of_rows(task)).size(1),
          with_margin(of_columns(task)).size(1)};
}
std::int64_t elements_of(const Shape& shape) { return shape[0] * shape[1] * shape[2]; }

bool channels_last(const at::Tensor& gradient) {
  return gradient.dim() == 4 && gradient.is_contiguous(at::MemoryFormat::ChannelsLast);
}

struct Layer {
  PreconditionBatch::Task inverses;
  // [groups, d_G, d_A], or [1, d_A, d_G], with the margins of the inverses (aligned.h).
  at::Tensor joined;
  at::Tensor product;
  at::Tensor result;

  double work() const {
    return static_cast<double>(joined.numel()) *
           static_cast<double>(joined.size(1) + joined.size(2));
  }
};

}  // namespace

class PreconditionBatch::Impl {
 public:
  Impl(const std::vector<Task>& tasks, Precision precision, const GraftRule& graft)
      : precision_(precision),
        graft_(graft),
        device_(tasks.front().inverse_a.device()),
        graph_([this] { queue_all(); }) {
    const at::TensorOptions options = tasks.front().inverse_a.options();
    std::vector<std::int64_t> begins;
    std::int64_t count = 0;
    for (const Task& task : tasks) {
      SPDKFAC_CHECK(task.inverse_a.stride(2) == 1 && task.inverse_g.stride(2) == 1 &&
                        task.inverse_a.dtype() == options.dtype() &&
                        task.inverse_g.dtype() == options.dtype(),
                    "inverses to precondition with differ in type, or lie in pieces");
      begins.push_back(count);
      const std::int64_t elements = elements_of(shape_of(task));
      SPDKFAC_CHECK(elements <= std::numeric_limits<std::int32_t>::max(),
                    "a gradient is too large");
      count += (elements + kAlignment - 1) / kAlignment * kAlignment;
    }
    joined_ =
        at::zeros({count}, options);  // what lies between the matrices stays zero, and margins
    result_ = at::zeros({count}, options);
    const auto layers = static_cast<std::int64_t>(tasks.size());
    SPDKFAC_CHECK(layers <= kMaxLayers, "more layers than one kernel takes");
    partial_ = at::empty({layers, kInnerParts}, options.dtype(at::kDouble));
    inner_ = at::empty({layers}, options.dtype(at::kDouble));
    for (std::size_t index = 0; index < tasks.size(); ++index) {
      const Task& task = tasks[index];
      const Shape shape = shape_of(task);
      const auto part = [&](const at::Tensor& memory) {
        return memory.narrow(0, begins[index], elements_of(shape)).view(shape);
      };
      layers_.push_back({task, part(joined_), {}, part(result_)});
    }
    AT_DISPATCH_FLOATING_TYPES(joined_.scalar_type(), "PreconditionBatch", [&] {
      make_inner_entries<scalar_t>();
      if (graft_.method == Graft::kAdam) make_adam_entries<scalar_t>();
    });
    spread();
  }

  at::Tensor run(const std::vector<Gradients>& gradients) {
    const c10::NoGradGuard no_grad;
    const c10::cuda::CUDAGuard guard(device_);
    SPDKFAC_CHECK(gradients.size() == layers_.size(), "a gradient is missing");
    AT_DISPATCH_FLOATING_TYPES(joined_.scalar_type(), "PreconditionBatch", [&] {
      const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
      in_parts(
          entries_of<scalar_t>(gradients, &Layer::joined), kJoinEntries,
          [&](const auto* part, int count) { return launch_join_gradients(part, count, stream); });
      graph_.run();
      in_parts(
          entries_of<scalar_t>(gradients, &Layer::result), kJoinEntries,
          [&](const auto* part, int count) { return launch_split_gradients(part, count, stream); });
    });
    return inner_;
  }

  Bytes buffer_bytes() const {
    std::size_t bytes = joined_.nbytes() + result_.nbytes();
    for (const at::Tensor& memory : products_) {
      if (memory.defined()) bytes += memory.nbytes();
    }
    return Bytes(static_cast<std::int64_t>(bytes));
  }

 private:
  static BiasPlace bias_place(const Task& task, const at::Tensor& weight) {
    if (task.rows_are_inputs) return task.has_bias ? BiasPlace::kRow : BiasPlace::kNone;
    const std::int64_t rows = task.inverse_g.size(0) * task.inverse_g.size(1);
    return weight.numel() < rows * task.inverse_a.size(1) ? BiasPlace::kColumn : BiasPlace::kNone;
  }

  // The gradients beside their matrices of one kind.
  template <class Scalar>
  std::vector<JoinEntry<Scalar>> entries_of(const std::vector<Gradients>& gradients,
                                            at::Tensor Layer::*kind) const {
    std::vector<JoinEntry<Scalar>> entries;
    for (std::size_t index = 0; index < layers_.size(); ++index) {
      const auto& [weight, bias] = gradients[index];
      const at::Tensor& matrix = layers_[index].*kind;
      const Task& task = layers_[index].inverses;
      const BiasPlace place = bias_place(task, weight);
      const std::int64_t group_rows = of_rows(task).size(1) - (place == BiasPlace::kRow ? 1 : 0);
      const std::int64_t rows = matrix.size(0) * group_rows;
      const std::int64_t columns = of_columns(task).size(1) - (place == BiasPlace::kColumn ? 1 : 0);
      const std::int64_t biases = place == BiasPlace::kRow ? columns : rows;
      SPDKFAC_CHECK(takes(weight, matrix.scalar_type()) && columns * rows == weight.numel() &&
                        (!bias.defined() || (bias.is_contiguous() && bias.numel() == biases &&
                                             bias.scalar_type() == matrix.scalar_type())),
                    "a gradient does not fit its inverses");
      entries.push_back(
          {.weight = weight.mutable_data_ptr<Scalar>(),
           .bias = bias.defined() ? bias.mutable_data_ptr<Scalar>() : nullptr,
           .joined = matrix.mutable_data_ptr<Scalar>(),
           .group_step = matrix.stride(0),
           .row_step = static_cast<std::int32_t>(matrix.stride(1)),
           .group_rows = static_cast<std::int32_t>(group_rows),
           .rows = static_cast<std::int32_t>(rows),
           .columns = static_cast<std::int32_t>(columns),
           .channels = weight.is_contiguous() ? 0 : static_cast<std::int32_t>(weight.size(1)),
           .place = place});
    }
    return entries;
  }

  template <class Scalar>
  void make_inner_entries() {
    std::vector<InnerEntry<Scalar>> entries;
    for (const Layer& layer : layers_) {
      entries.push_back({.gradient = layer.joined.const_data_ptr<Scalar>(),
                         .result = layer.result.mutable_data_ptr<Scalar>(),
                         .count = layer.joined.numel(),
                         .inverse_a = layer.inverses.inverse_a.const_data_ptr<Scalar>(),
                         .inverse_g = layer.inverses.inverse_g.const_data_ptr<Scalar>(),
                         .step_a = layer.inverses.inverse_a.stride(0),
                         .step_g = layer.inverses.inverse_g.stride(0),
                         .groups = static_cast<std::int32_t>(layer.inverses.inverse_a.size(0))});
    }
    const auto bytes = static_cast<std::int64_t>(entries.size() * sizeof(entries.front()));
    inner_entries_ = at::from_blob(entries.data(), {bytes}, at::kByte).to(device_);
  }

  // Layers of a lane run one after the other, and share room for what lies between their two
  // products.
  void spread() {
    std::vector<double> work;
    for (const Layer& layer : layers_) work.push_back(layer.work());
    lanes_ = spread_over_lanes(work);
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      if (lanes_[lane].empty()) continue;
      std::int64_t room = 0;
      for (const std::size_t index : lanes_[lane]) {
        room = std::max(room, layers_[index].joined.numel());
      }
      products_[lane] = at::empty({room}, joined_.options());
      for (const std::size_t index : lanes_[lane]) {
        Layer& layer = layers_[index];
        layer.product =
            products_[lane].narrow(0, 0, layer.joined.numel()).view(layer.joined.sizes());
      }
    }
  }

  // The matrices of one kind, as grafting takes them.
  std::vector<GraftedLayer> grafted(at::Tensor Layer::*kind) const {
    std::vector<GraftedLayer> result;
    for (const Layer& layer : layers_) result.push_back({{layer.*kind}, nullptr});
    return result;
  }

  template <class Scalar>
  void make_adam_entries() {
    std::vector<AdamEntry<Scalar>> entries;
    for (const Layer& layer : layers_) {
      const at::Tensor& rows = of_rows(layer.inverses);
      const std::int64_t columns = of_columns(layer.inverses).size(1);
      const std::optional<AdamMoments>& moments = layer.inverses.moments;
      SPDKFAC_CHECK(moments && moments->first.numel() == rows.size(0) * rows.size(1) * columns,
                    "a gradient to graft has no moments, or others");
      // A bias that has as many elements as the weight has rows is the last column of the moments.
      const bool bias_across =
          layer.inverses.rows_are_inputs && layer.inverses.has_bias && rows.size(1) == columns + 1;
      entries.push_back({.gradient = layer.joined.mutable_data_ptr<Scalar>(),
                         .group_step = layer.joined.stride(0),
                         .first = moments->first.mutable_data_ptr<Scalar>(),
                         .second = moments->second.mutable_data_ptr<Scalar>(),
                         .moment_step = static_cast<std::int32_t>(columns + (bias_across ? 1 : 0)),
                         .bias_row = bias_across ? static_cast<std::int32_t>(columns) : -1,
                         .row_step = static_cast<std::int32_t>(layer.joined.stride(1)),
                         .group_rows = static_cast<std::int32_t>(rows.size(1)),
                         .rows = static_cast<std::int32_t>(rows.size(0) * rows.size(1)),
                         .columns = static_cast<std::int32_t>(columns)});
    }
    const auto bytes = static_cast<std::int64_t>(entries.size() * sizeof(entries.front()));
    adam_entries_ = at::from_blob(entries.data(), {bytes}, at::kByte).to(device_);
    adam_partial_ = at::empty({inner_.numel(), kAdamParts}, inner_.options());
    adam_lengths_ = at::empty_like(inner_);
    bad_ = at::empty({}, inner_.options().dtype(at::kInt));
  }

  // As adam_lengths() in graft.h, with few kernels.
  at::Tensor adam_lengths() {
    const AdamNumbers numbers{graft_.adam.beta1, graft_.adam.beta2, graft_.adam.epsilon};
    AT_DISPATCH_FLOATING_TYPES(joined_.scalar_type(), "PreconditionBatch", [&] {
      const auto* entries = reinterpret_cast<const AdamEntry<scalar_t>*>(
          adam_entries_.const_data_ptr<std::uint8_t>());
      C10_CUDA_CHECK(
          launch_adam(entries, inner_.numel(), numbers, bad_.mutable_data_ptr<std::int32_t>(),
                      adam_partial_.mutable_data_ptr<double>(),
                      adam_lengths_.mutable_data_ptr<double>(), c10::cuda::getCurrentCUDAStream()));
    });
    std::vector<at::Tensor> steps;
    for (const Layer& layer : layers_) steps.push_back(layer.inverses.moments->steps);
    return adam_lengths_ * next_corrections(std::move(steps), graft_.adam);
  }

  void queue_all() {
    const PrecisionGuard precise(precision_, device_);
    const bool grafts = graft_.method != Graft::kNone;
    at::Tensor lengths;
    if (graft_.method == Graft::kAdam) lengths = adam_lengths();
    if (graft_.method == Graft::kSgd) lengths = gradient_lengths(grafted(&Layer::joined));
    streams_.run(device_, std::min(kLanes, layers_.size()), [&](std::size_t lane) {
      for (const std::size_t index : lanes_[lane]) {
        const Layer& layer = layers_[index];
        precondition(layer.joined, with_margin(of_columns(layer.inverses)),
                     with_margin(of_rows(layer.inverses)), layer.product, layer.result);
      }
    });
    AT_DISPATCH_FLOATING_TYPES(joined_.scalar_type(), "PreconditionBatch", [&] {
      const auto* entries = reinterpret_cast<const InnerEntry<scalar_t>*>(
          inner_entries_.const_data_ptr<std::uint8_t>());
      C10_CUDA_CHECK(launch_inner(entries, inner_.numel(), partial_.mutable_data_ptr<double>(),
                                  inner_.mutable_data_ptr<double>(),
                                  c10::cuda::getCurrentCUDAStream()));
    });
    if (grafts) set_lengths(grafted(&Layer::result), lengths);
  }

  Precision precision_;
  GraftRule graft_;
  at::Device device_;
  at::Tensor joined_;
  at::Tensor result_;
  at::Tensor partial_;
  at::Tensor inner_;
  at::Tensor inner_entries_;  // InnerEntry for each layer, as bytes
  at::Tensor adam_entries_;   // AdamEntry, likewise; these four only for grafting onto Adam
  at::Tensor adam_partial_;
  at::Tensor adam_lengths_;
  at::Tensor bad_;
  std::vector<Layer> layers_;
  std::array<std::vector<std::size_t>, kLanes> lanes_;
  std::array<at::Tensor, kLanes> products_;
  SideStreams streams_;
  GraphedWork graph_;
};

PreconditionBatch::PreconditionBatch(const std::vector<Task>& tasks, Precision precision,
                                     const GraftRule& graft)
    : impl_(std::make_unique<Impl>(tasks, precision, graft)) {}
PreconditionBatch::~PreconditionBatch() = default;
PreconditionBatch::PreconditionBatch(PreconditionBatch&&) noexcept = default;
PreconditionBatch& PreconditionBatch::operator=(PreconditionBatch&&) noexcept = default;
bool PreconditionBatch::takes(const at::Tensor& gradient, at::ScalarType type) {
  return gradient.is_cuda() && gradient.scalar_type() == type &&
         (gradient.is_contiguous() || channels_last(gradient));
}
at::Tensor PreconditionBatch::run(const std::vector<Gradients>& gradients) {
  return impl_->run(gradients);
}
Bytes PreconditionBatch::buffer_bytes() const { return impl_->buffer_bytes(); }

}  // namespace spdkfac::kfac
