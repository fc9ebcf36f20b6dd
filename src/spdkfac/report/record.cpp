// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/report/record.h"

#include <thread>

#include <fmt/format.h>

#include "spdkfac/base/host.h"

namespace spdkfac::report {
namespace {

constexpr const char* kModes[] = {"simulated", "measured", "emulated"};

// "Intel(R) Xeon(R) CPU @ 2.20GHz, 2 cores"
std::string host() {
  const unsigned cores = std::thread::hardware_concurrency();
  return fmt::format("{}, {} core{}", processor_name(), cores, cores == 1 ? "" : "s");
}

}  // namespace

Json to_json(const RecordHead& head) {
  return {{"format", "spdkfac.record/1"},
          {"experiment", head.experiment},
          {"mode", kModes[static_cast<std::size_t>(head.mode)]},
          {"made",
           {{"time", utc_stamp()},
            {"version", SPDKFAC_VERSION},
            {"commit", SPDKFAC_COMMIT},
            {"host", host()},
            {"device", head.device}}},
          {"options", head.options},
          {"cluster", head.cluster},
          {"note", head.note}};
}

Json to_json(const CategoryTimes& times) {
  Json parts = Json::object();
  for (const Category category : kCategories) {
    parts[std::string(category_name(category))] = times[category].value();
  }
  return parts;
}

}  // namespace spdkfac::report
