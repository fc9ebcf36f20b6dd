// SPDX-License-Identifier: Apache-2.0
#include "bindings.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "Bindings of the C++ library; use the package spdkfac.";
  spdkfac::python::bind_errors(module);
  spdkfac::python::bind_plan(module);
  spdkfac::python::bind_predict(module);
  spdkfac::python::bind_communicator(module);
  spdkfac::python::bind_runtime(module);
}
