// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "spdkfac/base/units.h"

namespace spdkfac::comm {

// Keeps the stream busy for this time, by the GPU's clock, with one GPU thread.
void delay_on_stream(cudaStream_t stream, Seconds time);

}  // namespace spdkfac::comm
