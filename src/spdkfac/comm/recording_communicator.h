// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "spdkfac/comm/communicator.h"

namespace spdkfac {

// Passes every operation on to another communicator and remembers what it was; for tests.
class RecordingCommunicator final : public Communicator {
 public:
  struct Record {
    Operation operation = Operation::kBarrier;
    std::int64_t elements = 0;
    int root = 0;
    std::string what;

    bool operator==(const Record&) const = default;
  };

  explicit RecordingCommunicator(std::shared_ptr<Communicator> inner);

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Work start(Request request) override;

  // In the order in which they were started.
  const std::vector<Record>& records() const { return records_; }
  void clear() { records_.clear(); }

 private:
  std::shared_ptr<Communicator> inner_;
  std::vector<Record> records_;
};

}  // namespace spdkfac
