// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "spdkfac/base/units.h"

namespace spdkfac {

// As the processor names itself, such as "Intel(R) Xeon(R) CPU @ 2.20GHz".
std::string processor_name();

// The memory that programs may still take, as /proc/meminfo says it; none where that cannot be
// told.
std::optional<Bytes> available_memory(const std::filesystem::path& meminfo = "/proc/meminfo");

// The time now in UTC, such as "2026-05-04T13:37:00Z".
std::string utc_stamp();

}  // namespace spdkfac
