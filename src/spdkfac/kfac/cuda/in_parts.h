// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include <c10/cuda/CUDAException.h>

namespace spdkfac::kfac {

// Calls launch(entries, count) for one part of the list after the other, of at most `most` entries:
// what a kernel takes as parameters.
template <class Entry, class Launch>
void in_parts(const std::vector<Entry>& entries, int most, const Launch& launch) {
  const auto step = static_cast<std::size_t>(most);
  for (std::size_t first = 0; first < entries.size(); first += step) {
    const std::size_t count = std::min(step, entries.size() - first);
    C10_CUDA_CHECK(launch(entries.data() + first, static_cast<int>(count)));
  }
}

}  // namespace spdkfac::kfac
