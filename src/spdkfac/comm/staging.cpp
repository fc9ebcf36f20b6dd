// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/staging.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace spdkfac::comm {
namespace {

at::Tensor pinned_like(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().device(at::kCPU).pinned_memory(true));
}

}  // namespace

bool Staging::needed(const Request& request) {
  return request.tensor.defined() && !request.tensor.is_cpu();
}

c10::Stream Staging::side_stream(const Request& request) {
  const c10::Device device = request.tensor.device();
  return c10::impl::VirtualGuardImpl(device.type())
      .getStreamFromGlobalPool(device, /*isHighPriority=*/true);
}

Staging::Staging(const Request& request)
    : device_(request), host_(request), ready_(request.tensor.device().type()) {
  const c10::Device device = request.tensor.device();
  ready_.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

void Staging::fetch(const c10::Stream& side, int rank) {
  const c10::StreamGuard guard(side);
  ready_.block(side);
  device_.tensor.record_stream(side);
  host_.tensor = pinned_like(device_.tensor);
  if (device_.operation != Operation::kBroadcast || rank == device_.root) {
    host_.tensor.copy_(device_.tensor, /*non_blocking=*/true);
  }
  if (device_.output.defined()) {
    device_.output.record_stream(side);
    host_.output = pinned_like(device_.output);
  }
  fetched_.emplace(side.device_type());
  fetched_->record(side);
}

c10::Event Staging::put_back(const c10::Stream& side, int rank) {
  const c10::StreamGuard guard(side);
  if (device_.output.defined()) {
    device_.output.copy_(host_.output, /*non_blocking=*/true);
  } else if (device_.operation == Operation::kAllReduce ||
             (device_.operation == Operation::kReduce) == (rank == device_.root)) {
    device_.tensor.copy_(host_.tensor, /*non_blocking=*/true);  // elsewhere the host has no result
  }
  c10::Event arrived(device_.tensor.device().type());
  arrived.record(side);
  return arrived;
}

}  // namespace spdkfac::comm
