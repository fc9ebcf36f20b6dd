// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace spdkfac::python {

// Each binds one part of the library to the module; the parts build on each other in this order.
void bind_errors(pybind11::module_& module);
void bind_plan(pybind11::module_& module);
void bind_predict(pybind11::module_& module);
void bind_communicator(pybind11::module_& module);
void bind_runtime(pybind11::module_& module);

}  // namespace spdkfac::python
