// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <memory>

#include <fmt/format.h>
#include <pybind11/stl.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/utils/pybind.h>

#include "bindings.h"
#include "spdkfac/base/error.h"
#include "spdkfac/comm/c10d.h"

namespace spdkfac::python {

namespace py = pybind11;

void bind_communicator(py::module_& module) {
  py::class_<Communicator, std::shared_ptr<Communicator>>(module, "Communicator")
      .def_property_readonly("rank", &Communicator::rank)
      .def_property_readonly("size", &Communicator::size)
      .def(
          "all_reduce",
          [](Communicator& self, const at::Tensor& tensor, const std::string& what) {
            self.all_reduce_async(tensor, what).wait();
          },
          py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("operations",
                             [](const Communicator& self) { return self.traffic().operations; })
      .def_property_readonly("sent_bytes",
                             [](const Communicator& self) { return self.traffic().sent; });
  module.def("c10d_communicator", [](const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                     const at::Device& device, double timeout) {
    if (!(timeout > 0)) {
      throw ConfigError(fmt::format("kfac: timeout={}; pass a number of seconds above 0", timeout));
    }
    CommOptions options;
    options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(1e3 * timeout) + 1);
    return make_c10d_communicator(group, device, options);
  });
}

}  // namespace spdkfac::python
