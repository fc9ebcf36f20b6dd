# SPDX-License-Identifier: Apache-2.0
# SPDKFAC_VERSION: what src/spdkfac/version.h says.
set(header ${CMAKE_CURRENT_LIST_DIR}/../src/spdkfac/version.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
file(STRINGS ${header} SPDKFAC_VERSION REGEX "define SPDKFAC_VERSION_(MAJOR|MINOR|PATCH) ")
list(TRANSFORM SPDKFAC_VERSION REPLACE "[^0-9]" "")
list(JOIN SPDKFAC_VERSION "." SPDKFAC_VERSION)
