// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/queued_work.h"

#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "spdkfac/base/error.h"

namespace spdkfac::comm {

void QueuedWork::wait() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return span_ || failure_; });
  if (failure_) throw CommError(*failure_);
  if (arrived_) {
    const c10::impl::VirtualGuardImpl guard(arrived_->device_type());
    arrived_->block(guard.getStream(arrived_->device()));
  }
}

bool QueuedWork::done() {
  const std::lock_guard lock(mutex_);
  return failure_ || (span_ && (!arrived_ || arrived_->query()));
}

std::optional<OperationSpan> QueuedWork::span() {
  const std::lock_guard lock(mutex_);
  return span_;
}

void QueuedWork::succeed(OperationSpan span, std::optional<c10::Event> arrived) {
  {
    const std::lock_guard lock(mutex_);
    span_ = span;
    arrived_ = std::move(arrived);
  }
  ended_.notify_all();
}

void QueuedWork::fail(std::string message) {
  {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(message);
  }
  ended_.notify_all();
}

}  // namespace spdkfac::comm
