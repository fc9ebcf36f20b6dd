// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/calibrate/quick_calibration.h"

#include <fmt/format.h>

#include "spdkfac/calibrate/calibration_cache.h"
#include "spdkfac/comm/rank_values.h"
#include "spdkfac/plan/cluster_file.h"

namespace spdkfac::calibrate {

QuickCalibration quick_calibration(Communicator& communicator, c10::Device device,
                                   const QuickCalibrationOptions& options) {
  const bool keeps_cache = communicator.rank() == 0;
  const Machine machine = find_machine(communicator, device);
  const std::string key = cache_key(machine, communicator.size(), options.transport);
  QuickCalibration result;
  std::string text;  // empty: nobody knows
  if (keeps_cache) {
    const auto folder =
        options.cache_folder.empty() ? default_cache_folder() : options.cache_folder;
    if (folder.empty()) {
      result.warning =
          "calibrate: there is no folder for the cache (neither XDG_CACHE_HOME nor HOME is set); "
          "set one of them, or costs are measured in every run";
    } else {
      result.file = cache_file(folder, key);
      if (!options.recalibrate) text = read_cache(result.file, key, result.warning);
    }
  }
  text = comm::text_of_rank_zero(communicator, device, text);
  if (!text.empty()) {
    result.costs = parse_cluster(parse_json(text, "calibrate: cache"), "calibrate: cache");
    return result;
  }

  CalibrationOptions sizes = options.sizes.value_or(quick_sizes(device));
  sizes.name = fmt::format("this-machine-{}", communicator.size());
  result.costs = calibrate(communicator, device, sizes).costs;
  result.measured = true;
  if (!result.file.empty()) write_cache(result.file, key, result.costs, result.warning);
  return result;
}

}  // namespace spdkfac::calibrate
