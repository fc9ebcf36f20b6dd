// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/train/device.h"

#include <ATen/Context.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "spdkfac/base/error.h"
#include "spdkfac/train/ranks.h"

namespace spdkfac::train {

c10::Device find_device(const std::string& name) {
  if (name == "cpu") return c10::kCPU;
  if (!c10::impl::hasDeviceGuardImpl(c10::kCUDA)) {
    throw ConfigError(
        "flags: --device cuda: this build has no CUDA; build with nvcc and a torch for CUDA "
        "(-DSPDKFAC_CUDA=ON), or use --device cpu");
  }
  if (!at::hasCUDA()) {
    throw ConfigError(
        "flags: --device cuda: this machine has no GPU that torch can use; use --device cpu, or "
        "check its driver with nvidia-smi");
  }
  const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
  const c10::Device device(c10::kCUDA,
                           static_cast<c10::DeviceIndex>(rank_on_host() % guard.deviceCount()));
  guard.setDevice(device);
  return device;
}

}  // namespace spdkfac::train
