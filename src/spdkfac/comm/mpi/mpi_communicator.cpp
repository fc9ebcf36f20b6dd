// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "spdkfac/comm/mpi.h"
#include "spdkfac/comm/mpi/mpi_channel.h"

namespace spdkfac::comm {
namespace {

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(const CommOptions& options) : channel_(options) {}

  int rank() const override { return channel_.world().rank; }
  int size() const override { return channel_.world().size; }
  Work start(Request request) override { return Work(channel_.submit(std::move(request))); }

 private:
  MpiChannel channel_;
};

}  // namespace
}  // namespace spdkfac::comm

namespace spdkfac {

bool built_with_mpi() { return true; }

std::shared_ptr<Communicator> make_mpi_communicator(const CommOptions& options) {
  return std::make_shared<comm::MpiCommunicator>(options);
}

}  // namespace spdkfac
