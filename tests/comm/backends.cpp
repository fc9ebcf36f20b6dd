// SPDX-License-Identifier: Apache-2.0
#include "comm/backends.h"

#include "spdkfac/comm/emulated_link.h"
#include "spdkfac/comm/mpi.h"
#include "spdkfac/comm/nccl.h"
#include "spdkfac/comm/logged_communicator.h"
#include "support/device.h"
#include "support/world.h"

namespace spdkfac {

std::vector<Backend> backends() {
  const auto logged = [] { return std::make_shared<LoggedCommunicator>(support::world()); };
  // Slow enough that operations queue on the link, fast enough for hundreds of them.
  const auto emulated = [] {
    return std::make_shared<EmulatedLink>(support::world(), [](Operation, std::int64_t elements) {
      return Seconds(20e-6 + 1e-9 * static_cast<double>(elements));
    });
  };
  std::vector<Backend> all{{"local", make_local_communicator}};
  if (launched_by_mpi()) all.push_back({"mpi", support::world});
  // NCCL takes one rank for each GPU, and the tests have one GPU.
  if (support::on_cuda() && built_with_nccl() && !launched_by_mpi()) {
    all.push_back(
        {"nccl", [] { return make_nccl_communicator(support::world(), support::test_device()); }});
  }
  all.push_back({"logged", logged});
  all.push_back({"emulated", emulated});
  return all;
}

}  // namespace spdkfac
