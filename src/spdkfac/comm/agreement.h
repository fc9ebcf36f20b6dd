// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <span>
#include <string>

#include "spdkfac/comm/communicator.h"

namespace spdkfac::comm {

// Compares `value` across the ranks; all ranks call it together. If the values differ, every rank
// throws a ConfigError that names `what`, its own value and the ranks that differ from rank 0.
void require_same(Communicator& communicator, const std::string& what, const std::string& value);

// A value with its name.
struct Fact {
  std::string name;
  std::string value;
};
// Likewise for several values of one thing, in one message; the error names those that differ. All
// ranks pass the same names.
void require_same(Communicator& communicator, const std::string& what, std::span<const Fact> facts);

// Whether all ranks could do their part of `what`: `failure` is why this one could not, or null. If
// one could not, it throws its failure, and all others a ConfigError that names it. All ranks call
// it together, before the part that they can only do together.
void require_all(Communicator& communicator, const std::string& what,
                 const std::exception_ptr& failure);

}  // namespace spdkfac::comm
