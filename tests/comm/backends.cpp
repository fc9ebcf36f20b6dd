// SPDX-License-Identifier: Apache-2.0
#include "comm/backends.h"

#include "spdkfac/comm/emulated_link.h"
#include "spdkfac/comm/logged_communicator.h"
#include "spdkfac/comm/mpi.h"
#include "spdkfac/comm/nccl.h"
#include "support/device.h"
#include "support/world.h"

namespace spdkfac {
namespace {

// Slow enough that operations queue on the link, fast enough for hundreds of them.
std::shared_ptr<Communicator> emulated(std::shared_ptr<Communicator> inner) {
  return std::make_shared<EmulatedLink>(std::move(inner), [](Operation, const Load& load) {
    return Seconds(20e-6 + 1e-9 * static_cast<double>(load.elements));
  });
}

}  // namespace

std::vector<Backend> backends() {
  using Body = const RankFunction&;
  std::vector<Backend> all;
  all.push_back({"local", [](Body body) { body(make_local_communicator()); }});
  if (launched_by_mpi()) {
    all.push_back({"mpi", [](Body body) { body(support::world()); }});
  } else if (!support::on_cuda()) {
    all.push_back({"threads", [](Body body) { run_ranks(3, body); }});
    all.push_back({"emulated_threads", [](Body body) {
                     run_ranks(2, [&](const auto& inner) { body(emulated(inner)); });
                   }});
  } else if (built_with_nccl()) {
    // NCCL takes one rank for each GPU, and the tests have one GPU.
    all.push_back({"nccl", [](Body body) {
                     body(make_nccl_communicator(support::world(), support::test_device()));
                   }});
  }
  all.push_back({"logged", [](Body body) {
                   body(std::make_shared<comm::LoggedCommunicator>(support::world()));
                 }});
  all.push_back({"emulated", [](Body body) { body(emulated(support::world())); }});
  return all;
}

}  // namespace spdkfac
