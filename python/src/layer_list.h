// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <fmt/ranges.h>
#include <pybind11/pybind11.h>

#include "spdkfac/base/error.h"
#include "spdkfac/runtime/tracked_layer.h"

namespace spdkfac::python {

// A reference to a Python object that may be copied and dropped without the interpreter's lock.
using SharedObject = std::shared_ptr<PyObject>;
SharedObject share(pybind11::object object);

// The value of an enumeration by its name.
template <class Enum>
Enum choice(const char* field, const std::vector<std::string>& names, const std::string& word) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == word) return static_cast<Enum>(i);
  }
  throw ConfigError(
      fmt::format("kfac: {}={}; pass one of {}", field, word, fmt::join(names, ", ")));
}

// Objects of spdkfac.layers.CoveredLayer.
using LayerList = std::vector<pybind11::object>;
std::vector<TrackedLayer> layers_of(const LayerList& covered);

}  // namespace spdkfac::python
