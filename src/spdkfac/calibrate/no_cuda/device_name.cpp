// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/base/check.h"
#include "spdkfac/calibrate/machine.h"

namespace spdkfac::calibrate {

std::string cuda_device_name(c10::Device) {
  SPDKFAC_CHECK(false, "this build has no CUDA, so there is no such device");
}

}  // namespace spdkfac::calibrate
