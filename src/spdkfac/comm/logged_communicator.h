// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "spdkfac/comm/communicator.h"

namespace spdkfac::comm {

// Passes every operation to another communicator and keeps a list of the calls; for tests.
class LoggedCommunicator final : public Communicator {
 public:
  struct Call {
    Operation operation = Operation::kBarrier;
    std::int64_t elements = 0;
    int root = 0;
    std::string what;

    bool operator==(const Call&) const = default;
  };

  explicit LoggedCommunicator(std::shared_ptr<Communicator> inner);

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Work start(Request request) override;

  // In the order in which they were started.
  const std::vector<Call>& calls() const { return calls_; }
  void clear() { calls_.clear(); }

 private:
  std::shared_ptr<Communicator> inner_;
  std::vector<Call> calls_;
};

}  // namespace spdkfac::comm
