// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/calibrate/machine.h"

namespace spdkfac::calibrate {

std::string cuda_device_name(c10::Device device) {
  cudaDeviceProp properties{};
  const cudaError_t result = cudaGetDeviceProperties(&properties, std::max<int>(0, device.index()));
  if (result != cudaSuccess) {
    throw Error(
        fmt::format("calibrate: the name of the GPU is not available ({}); check its driver",
                    cudaGetErrorString(result)));
  }
  return properties.name;
}

}  // namespace spdkfac::calibrate
