// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "spdkfac/comm/threads.h"

namespace spdkfac {

// A kind of communicator that the common suite runs on.
struct Backend {
  std::string name;
  // Calls the function with the communicator of each rank that this process has.
  std::function<void(const RankFunction&)> run;
};

inline void PrintTo(const Backend& backend, std::ostream* out) { *out << backend.name; }

// Those that this process can use: under mpirun over its ranks, otherwise over one rank or threads.
std::vector<Backend> backends();

}  // namespace spdkfac
