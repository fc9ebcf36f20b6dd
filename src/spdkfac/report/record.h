// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "spdkfac/base/category.h"
#include "spdkfac/base/json.h"

namespace spdkfac::report {

// Where the numbers of a record come from.
enum class RecordMode { kSimulated, kMeasured, kEmulated };

// What every record of an experiment begins with; docs/records.md has the format.
struct RecordHead {
  std::string experiment;
  RecordMode mode = RecordMode::kSimulated;
  std::string device;  // that measured it; empty where nothing was measured
  Json options = Json::object();
  std::string cluster;  // the cost model of forecasts and replays
  std::string note;     // what a reader must know
};

// The head as the beginning of a record, with the time, the program's version and commit, and the
// machine.
Json to_json(const RecordHead& head);

// {"ff_bp": seconds, …}
Json to_json(const CategoryTimes& times);

}  // namespace spdkfac::report
