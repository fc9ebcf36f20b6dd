// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "spdkfac/comm/communicator.h"

namespace spdkfac {

// Small things that all ranks must know alike. All ranks call them together; the messages travel
// from and to `device`, since not every communicator takes tensors of the host.

// The values of each rank; as many on each.
std::vector<std::vector<double>> numbers_of_ranks(Communicator& communicator, c10::Device device,
                                                  const std::vector<double>& values);
// Element by element the largest of them.
std::vector<double> largest_of_ranks(Communicator& communicator, c10::Device device,
                                     const std::vector<double>& values);

// The text of rank 0.
std::string text_of_rank_zero(Communicator& communicator, c10::Device device,
                              const std::string& text);

// The texts of all ranks, by rank.
std::vector<std::string> texts_of_ranks(Communicator& communicator, c10::Device device,
                                        const std::string& text);

}  // namespace spdkfac
