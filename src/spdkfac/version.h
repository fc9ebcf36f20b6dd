// SPDX-License-Identifier: Apache-2.0
#pragma once

// The version of these headers. CMakeLists.txt and pyproject.toml read it from here.
#define SPDKFAC_VERSION_MAJOR 0
#define SPDKFAC_VERSION_MINOR 2
#define SPDKFAC_VERSION_PATCH 0

#define SPDKFAC_VERSION_TEXT_(part) #part
#define SPDKFAC_VERSION_JOIN_(major, minor, patch) \
  SPDKFAC_VERSION_TEXT_(major) "." SPDKFAC_VERSION_TEXT_(minor) "." SPDKFAC_VERSION_TEXT_(patch)
#define SPDKFAC_VERSION_STRING \
  SPDKFAC_VERSION_JOIN_(SPDKFAC_VERSION_MAJOR, SPDKFAC_VERSION_MINOR, SPDKFAC_VERSION_PATCH)

namespace spdkfac {

// The version of the library that is linked, as in "1.2.3"; a program may compare it with
// SPDKFAC_VERSION_STRING.
const char* version() noexcept;

}  // namespace spdkfac
