// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "spdkfac/comm/cuda/delay.h"
#include "spdkfac/comm/cuda/gpu_clock.h"
#include "spdkfac/comm/emulated_link.h"

namespace spdkfac {
namespace {

class StreamWork final : public Work::State {
 public:
  explicit StreamWork(std::shared_ptr<const comm::GpuClock> clock) : clock_(std::move(clock)) {}

  void wait() override { end.block(c10::cuda::getCurrentCUDAStream().unwrap()); }
  bool done() override { return end.query(); }
  std::optional<OperationSpan> span() override {
    end.synchronize();
    return OperationSpan{(*clock_)(begin), (*clock_)(end)};
  }

  c10::Event begin = comm::GpuClock::event();
  c10::Event end = comm::GpuClock::event();

 private:
  std::shared_ptr<const comm::GpuClock> clock_;
};

// The link is a stream: an operation begins when its tensor is ready and the previous operations
// have ended, and the host never waits.
class EmulatedStream final : public Communicator {
 public:
  EmulatedStream(std::shared_ptr<Communicator> inner, EmulatedLink::Duration duration,
                 at::Device device)
      : inner_(std::move(inner)),
        duration_(std::move(duration)),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device.index())),
        clock_(std::make_shared<comm::GpuClock>(stream_)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }

  Work start(Request request) override {
    if (!request.tensor.defined() || !request.tensor.is_cuda()) {
      return inner_->start(std::move(request));
    }
    auto work = std::make_shared<StreamWork>(clock_);
    c10::Event ready(at::kCUDA);
    ready.record(c10::cuda::getCurrentCUDAStream().unwrap());
    ready.block(stream_.unwrap());
    request.tensor.record_stream(stream_.unwrap());
    if (request.output.defined()) request.output.record_stream(stream_.unwrap());
    const Seconds length = duration_(request.operation, request.load());
    const c10::cuda::CUDAStreamGuard guard(stream_);
    work->begin.record(stream_.unwrap());
    inner_->start(std::move(request)).wait();
    comm::delay_on_stream(stream_.stream(), length);
    work->end.record(stream_.unwrap());
    return Work(std::move(work));
  }

 private:
  std::shared_ptr<Communicator> inner_;
  EmulatedLink::Duration duration_;
  c10::cuda::CUDAStream stream_;
  std::shared_ptr<const comm::GpuClock> clock_;
};

}  // namespace

std::shared_ptr<Communicator> make_emulated_link(std::shared_ptr<Communicator> inner,
                                                 EmulatedLink::Duration duration,
                                                 at::Device device) {
  if (device.is_cpu()) {
    return std::make_shared<EmulatedLink>(std::move(inner), std::move(duration));
  }
  return std::make_shared<EmulatedStream>(std::move(inner), std::move(duration), device);
}

}  // namespace spdkfac
