// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "spdkfac/comm/communicator.h"

namespace spdkfac {

// A communicator that the common suite runs on.
struct Backend {
  std::string name;
  std::function<std::shared_ptr<Communicator>()> make;
};

inline void PrintTo(const Backend& backend, std::ostream* out) { *out << backend.name; }

// Those that this process can have: under mpirun over its ranks, without it over one.
std::vector<Backend> backends();

}  // namespace spdkfac
