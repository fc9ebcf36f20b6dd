// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "spdkfac/base/units.h"
#include "spdkfac/comm/communicator.h"

namespace spdkfac {

// Lets another communicator do the work, but an operation ends only when it would have ended on a
// slower link: a channel that carries one operation at a time, first in first out, each for the
// time that `duration` gives. So one machine can stand for a rank of a cluster.
// wait() sleeps on the host until then; span() is the time on the channel.
class EmulatedLink final : public Communicator {
 public:
  using Duration = std::function<Seconds(Operation operation, std::int64_t elements)>;

  EmulatedLink(std::shared_ptr<Communicator> inner, Duration duration);

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Work start(Request request) override;

 private:
  std::shared_ptr<Communicator> inner_;
  Duration duration_;
  std::chrono::steady_clock::time_point channel_free_;
};

// The same for tensors of `device`. On a GPU the channel is a stream of its own: an operation takes
// its time there, from when its tensor is ready, and the host never waits.
std::shared_ptr<Communicator> make_emulated_link(std::shared_ptr<Communicator> inner,
                                                 EmulatedLink::Duration duration,
                                                 at::Device device);

}  // namespace spdkfac
