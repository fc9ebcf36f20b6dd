// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/modes.h"

namespace spdkfac {

const std::vector<std::string>& convention_names() {
  static const std::vector<std::string> names = {"kfc", "paper", "kfac-pytorch"};
  return names;
}

const std::vector<std::string>& loss_reduction_names() {
  static const std::vector<std::string> names = {"mean", "sum"};
  return names;
}

const std::vector<std::string>& damping_names() {
  static const std::vector<std::string> names = {"plain", "pi", "relative"};
  return names;
}

const std::vector<std::string>& graft_names() {
  static const std::vector<std::string> names = {"none", "sgd", "adam"};
  return names;
}

const std::vector<std::string>& large_factors_names() {
  static const std::vector<std::string> names = {"diagonal", "blocks"};
  return names;
}

const std::vector<std::string>& sharing_names() {
  static const std::vector<std::string> names = {"expand", "reduce"};
  return names;
}

}  // namespace spdkfac
