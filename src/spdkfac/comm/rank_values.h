// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "spdkfac/comm/communicator.h"

namespace spdkfac::comm {

// Small values that every rank needs from the others. All ranks call these functions together. The
// messages use tensors on `device`, because not every communicator takes CPU tensors.

// The values of each rank; all ranks pass the same number of them.
std::vector<std::vector<double>> numbers_of_ranks(Communicator& communicator, c10::Device device,
                                                  const std::vector<double>& values);
// The largest of them, element by element.
std::vector<double> largest_of_ranks(Communicator& communicator, c10::Device device,
                                     const std::vector<double>& values);

// The text of rank 0.
std::string text_of_rank_zero(Communicator& communicator, c10::Device device,
                              const std::string& text);

// The texts of all ranks, by rank.
std::vector<std::string> texts_of_ranks(Communicator& communicator, c10::Device device,
                                        const std::string& text);

}  // namespace spdkfac::comm
