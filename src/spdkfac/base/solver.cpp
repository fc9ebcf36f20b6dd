// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/base/solver.h"

namespace spdkfac {

const std::vector<std::string>& solver_names() {
  static const std::vector<std::string> names = {"inverse", "eigen", "ekfac", "adam"};
  return names;
}

}  // namespace spdkfac
