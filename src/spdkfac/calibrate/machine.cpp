// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/calibrate/machine.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <thread>

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include "spdkfac/base/host.h"
#include "spdkfac/comm/rank_values.h"
#include "spdkfac/version.h"

namespace spdkfac::calibrate {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

// tools/with_link.sh, Open MPI, UCX, NCCL.
constexpr std::array kTransportVariables{
    "SPDKFAC_LINK", "OMPI_MCA_btl",    "OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_pml",
    "UCX_TLS",      "UCX_NET_DEVICES", "NCCL_SOCKET_IFNAME",          "NCCL_IB_DISABLE"};

std::string transport_variables() {
  std::string text;
  for (const char* name : kTransportVariables) {
    if (const char* value = std::getenv(name))
      text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  }
  return text;
}

}  // namespace

std::size_t Machine::host_count() const { return std::set(hosts.begin(), hosts.end()).size(); }

bool Machine::shares_cores() const {
  return std::any_of(hosts.begin(), hosts.end(), [&](const std::string& host) {
    return std::count(hosts.begin(), hosts.end(), host) * threads > cores;
  });
}

Machine find_machine(Communicator& communicator, c10::Device device) {
  Machine machine;
  machine.hosts = comm::texts_of_ranks(communicator, device, host_name());
  std::sort(machine.hosts.begin(), machine.hosts.end());
  machine.device = comm::text_of_rank_zero(
      communicator, device, device.is_cpu() ? processor_name() : cuda_device_name(device));
  machine.threads = std::stoi(
      comm::text_of_rank_zero(communicator, device, std::to_string(at::get_num_threads())));
  machine.cores = std::stoi(comm::text_of_rank_zero(
      communicator, device, std::to_string(std::thread::hardware_concurrency())));
  machine.transport = comm::text_of_rank_zero(communicator, device, transport_variables());
  return machine;
}

std::string versions() {
  return fmt::format("spdkfac {}, torch {}", SPDKFAC_VERSION_STRING, TORCH_VERSION);
}

}  // namespace spdkfac::calibrate
