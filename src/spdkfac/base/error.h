// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace spdkfac {

// Messages read `where: what (values); what to do`, see docs/errors.md.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The user's mistake: a flag, a file, an option, the environment.
class ConfigError : public Error {
 public:
  using Error::Error;
};

// A peer that died, disagrees or does not answer in time.
class CommError : public Error {
 public:
  using Error::Error;
};

// A matrix that cannot be handled as asked.
class NumericalError : public Error {
 public:
  using Error::Error;
};

}  // namespace spdkfac
