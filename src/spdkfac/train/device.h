// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <c10/core/Device.h>

namespace spdkfac::train {

// `cpu` or `cuda`, of which ranks on one host take one each as far as there are; a GPU that is not
// there is a ConfigError that says whether the build or the machine lacks it.
c10::Device find_device(const std::string& name);

}  // namespace spdkfac::train
