// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "spdkfac/base/units.h"

namespace spdkfac {

// Keeps the stream busy for the time, by the GPU's clock, with one thread.
void delay_on_stream(cudaStream_t stream, Seconds time);

}  // namespace spdkfac
