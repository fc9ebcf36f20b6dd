// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace spdkfac {

// The model name of this machine's processor; "unknown processor" where the system does not say.
std::string processor_name();

}  // namespace spdkfac
