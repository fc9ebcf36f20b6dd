// SPDX-License-Identifier: Apache-2.0
#include "bindings.h"

PYBIND11_MODULE(SPDKFAC_CORE_MODULE, module) {
  module.doc() = "Training, for one version of torch; use the package spdkfac.";
  spdkfac::python::bind_errors();
  spdkfac::python::bind_communicator(module);
  spdkfac::python::bind_plan_source(module);
  spdkfac::python::bind_runtime(module);
  spdkfac::python::bind_curvature(module);
}
