// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/logged_communicator.h"

#include <utility>

namespace spdkfac::comm {

LoggedCommunicator::LoggedCommunicator(std::shared_ptr<Communicator> inner)
    : inner_(std::move(inner)) {}

Work LoggedCommunicator::start(Request request) {
  calls_.push_back({.operation = request.operation,
                    .elements = request.tensor.defined() ? request.tensor.numel() : 0,
                    .root = request.root,
                    .what = request.what});
  return inner_->start(std::move(request));
}

}  // namespace spdkfac::comm
