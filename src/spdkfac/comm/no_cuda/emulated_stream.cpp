// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "spdkfac/base/error.h"
#include "spdkfac/comm/emulated_link.h"

namespace spdkfac {

std::shared_ptr<Communicator> make_emulated_link(std::shared_ptr<Communicator> inner,
                                                 EmulatedLink::Duration duration,
                                                 at::Device device) {
  if (!device.is_cpu()) {
    throw ConfigError("emulated link: this build has no CUDA; build with the preset cuda");
  }
  return std::make_shared<EmulatedLink>(std::move(inner), std::move(duration));
}

}  // namespace spdkfac
