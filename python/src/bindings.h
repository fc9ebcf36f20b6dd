// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace spdkfac::python {

// Our errors arrive as those of spdkfac/errors.py. Each module calls it.
void bind_errors();

// Each binds one part of the library to a module, in this order: _plan without torch, then _core.
// Both have a pybind11 of their own, so what goes from one to the other is JSON text.
void bind_plan(pybind11::module_& module);
void bind_predict(pybind11::module_& module);
void bind_communicator(pybind11::module_& module);
void bind_plan_source(pybind11::module_& module);
void bind_runtime(pybind11::module_& module);
void bind_curvature(pybind11::module_& module);

}  // namespace spdkfac::python
