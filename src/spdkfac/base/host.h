// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace spdkfac {

// As the processor names itself, such as "Intel(R) Xeon(R) CPU @ 2.20GHz".
std::string processor_name();

// The time now in UTC, such as "2026-05-04T13:37:00Z".
std::string utc_stamp();

}  // namespace spdkfac
