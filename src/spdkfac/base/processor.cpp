// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/base/processor.h"

#include <fstream>

namespace spdkfac {

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

}  // namespace spdkfac
