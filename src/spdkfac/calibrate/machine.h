// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "spdkfac/comm/communicator.h"

namespace spdkfac::calibrate {

// Where a calibration runs; the same on all ranks.
struct Machine {
  std::vector<std::string> hosts;  // sorted, each as often as it has ranks
  std::string device;              // its model, of rank 0
  int threads = 1;                 // of torch, on rank 0
  int cores = 1;                   // that rank 0 may run on
  // What chooses the network in the environment of rank 0, as `NAME=value` words.
  std::string transport;

  std::size_t host_count() const;
  // Whether a host has more threads of ranks than cores.
  bool shares_cores() const;
};

// Asks all ranks.
Machine find_machine(Communicator& communicator, c10::Device device);

// Of the program and of torch.
std::string versions();

// Name of a CUDA device; cuda/ and no_cuda/ implement it.
std::string cuda_device_name(c10::Device device);

}  // namespace spdkfac::calibrate
