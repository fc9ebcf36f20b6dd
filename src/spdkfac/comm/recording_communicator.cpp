// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/recording_communicator.h"

#include <utility>

namespace spdkfac {

RecordingCommunicator::RecordingCommunicator(std::shared_ptr<Communicator> inner)
    : inner_(std::move(inner)) {}

Work RecordingCommunicator::start(Request request) {
  records_.push_back({.operation = request.operation,
                      .elements = request.tensor.defined() ? request.tensor.numel() : 0,
                      .root = request.root,
                      .what = request.what});
  return inner_->start(std::move(request));
}

}  // namespace spdkfac
