// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "spdkfac/base/units.h"
#include "spdkfac/comm/communicator.h"

namespace spdkfac {

// Passes every operation to another communicator, but lets it end only when it would have ended on
// a slower link. The link carries one operation at a time, first in first out, each for the time
// that `duration` returns for what it is charged for, so one machine can stand in for a rank of a
// cluster. wait() sleeps on the host until the end; span() is the time on the link.
class EmulatedLink final : public Communicator {
 public:
  using Duration = std::function<Seconds(Operation operation, const Load& load)>;

  EmulatedLink(std::shared_ptr<Communicator> inner, Duration duration);

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Work start(Request request) override;

 private:
  std::shared_ptr<Communicator> inner_;
  Duration duration_;
  std::chrono::steady_clock::time_point link_free_;
};

// The same for tensors on `device`. On a GPU the link is a separate stream: an operation occupies
// it from when its tensor is ready, and the host never waits.
std::shared_ptr<Communicator> make_emulated_link(std::shared_ptr<Communicator> inner,
                                                 EmulatedLink::Duration duration,
                                                 at::Device device);

}  // namespace spdkfac
