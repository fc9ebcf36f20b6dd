// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/version.h"

namespace spdkfac {

const char* version() noexcept { return SPDKFAC_VERSION_STRING; }

}  // namespace spdkfac
