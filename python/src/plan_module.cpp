// SPDX-License-Identifier: Apache-2.0
#include "bindings.h"

PYBIND11_MODULE(_plan, module) {
  module.doc() = "Plans and forecasts, without torch; use the package spdkfac.";
  spdkfac::python::bind_errors();
  spdkfac::python::bind_plan(module);
  spdkfac::python::bind_predict(module);
}
