// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/base/error.h"
#include "spdkfac/kfac/cuda/average_cuda.h"
#include "spdkfac/kfac/cuda/gradients_cuda.h"
#include "spdkfac/kfac/cuda/shifts_cuda.h"
#include "spdkfac/kfac/cuda/symmetric_cuda.h"
#include "spdkfac/kfac/graphed_work.h"
#include "spdkfac/kfac/inverse_batch.h"
#include "spdkfac/kfac/precondition_batch.h"

namespace spdkfac::kfac {
namespace {

[[noreturn]] void fail() {
  throw ConfigError(
      "kfac: this build has no CUDA kernels; build with nvcc of torch's CUDA version on the path "
      "and -DSPDKFAC_CUDA=ON, or pip install . -C cmake.define.SPDKFAC_CUDA=ON");
}

}  // namespace

void pack_upper_cuda(const std::vector<Triangle>&) { fail(); }
void unpack_upper_cuda(const at::Tensor&, at::Tensor) { fail(); }
at::Tensor average_cuda(const std::vector<CudaAverage>&, double) { fail(); }
at::Tensor diagonal_means_cuda(const std::vector<at::Tensor>&) { fail(); }
void scale_or_clear_cuda(const std::vector<at::Tensor>&, const std::vector<at::Tensor>&,
                         const at::Tensor&, const at::Tensor&) {
  fail();
}

at::Tensor gather_edges_cuda(const at::Tensor&, const std::vector<EdgePatches>&,
                             std::array<std::int64_t, 2>) {
  fail();
}

template <class Scalar>
void assemble_cuda(const ShiftAssembly<Scalar>&, Scalar, Scalar, const at::Tensor&) {
  fail();
}
template void assemble_cuda(const ShiftAssembly<float>&, float, float, const at::Tensor&);
template void assemble_cuda(const ShiftAssembly<double>&, double, double, const at::Tensor&);

class InverseBatch::Impl {};
InverseBatch::InverseBatch(const std::vector<Task>&, Precision) { fail(); }
InverseBatch::~InverseBatch() = default;
InverseBatch::InverseBatch(InverseBatch&&) noexcept = default;
InverseBatch& InverseBatch::operator=(InverseBatch&&) noexcept = default;
void InverseBatch::refresh(const at::Tensor&) { fail(); }
const at::Tensor& InverseBatch::failures() const { fail(); }
const at::Tensor& InverseBatch::kept() const { fail(); }
Bytes InverseBatch::buffer_bytes() const { fail(); }

class PreconditionBatch::Impl {};
PreconditionBatch::PreconditionBatch(const std::vector<Task>&, Precision, const GraftRule&) {
  fail();
}
PreconditionBatch::~PreconditionBatch() = default;
PreconditionBatch::PreconditionBatch(PreconditionBatch&&) noexcept = default;
PreconditionBatch& PreconditionBatch::operator=(PreconditionBatch&&) noexcept = default;
bool PreconditionBatch::takes(const at::Tensor&, at::ScalarType) { return false; }
at::Tensor PreconditionBatch::run(const std::vector<Gradients>&) { fail(); }
Bytes PreconditionBatch::buffer_bytes() const { fail(); }

class GraphedWork::Graphs {};
GraphedWork::GraphedWork(std::function<void()> queue, bool) : queue_(std::move(queue)) {}
GraphedWork::~GraphedWork() = default;
void GraphedWork::run(int) { queue_(); }
bool is_recording(c10::Device) { return false; }

}  // namespace spdkfac::kfac
