// SPDX-License-Identifier: Apache-2.0
#include "layer_list.h"

#include <optional>
#include <utility>

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/pythoncapi_compat.h>

namespace spdkfac::python {

namespace py = pybind11;

SharedObject share(py::object object) {
  return SharedObject(object.release().ptr(), [](PyObject* held) {
    // While Python ends, another thread must not ask for the lock: it would not return.
    if (Py_IsInitialized() == 0 || Py_IsFinalizing() != 0) return;
    const py::gil_scoped_acquire lock;
    Py_DECREF(held);
  });
}

namespace {

std::vector<at::Tensor> buffers_of(const SharedObject& modules) {
  const py::gil_scoped_acquire lock;
  std::vector<at::Tensor> all;
  for (const py::handle module : py::handle(modules.get())) {
    for (const py::handle buffer : module.attr("buffers")(false)) {
      all.push_back(buffer.cast<at::Tensor>());
    }
  }
  return all;
}

OutputRange range_of(const py::object& range) {
  if (range.is_none()) return {};
  const auto [first, count] = range.cast<std::pair<std::int64_t, std::int64_t>>();
  return {first, count};
}

}  // namespace

std::vector<TrackedLayer> layers_of(const LayerList& covered) {
  std::vector<TrackedLayer> layers;
  for (const py::object& one : covered) {
    const auto bias = one.attr("bias").cast<std::optional<at::Tensor>>();
    const auto shard = one.attr("shard").cast<std::optional<at::Tensor>>();
    layers.push_back({.name = one.attr("name").cast<std::string>(),
                      .weight = one.attr("weight").cast<at::Tensor>(),
                      .bias = bias.value_or(at::Tensor()),
                      .shard = shard.value_or(at::Tensor()),
                      .groups = one.attr("groups").cast<std::int64_t>(),
                      .kind = choice<LayerKind>("kind", layer_kind_names(),
                                                one.attr("kind").cast<std::string>()),
                      .outputs = range_of(one.attr("outputs")),
                      .bias_outputs = range_of(one.attr("bias_outputs")),
                      .training =
                          [held = share(one.attr("module"))] {
                            const py::gil_scoped_acquire lock;
                            return py::handle(held.get()).attr("training").cast<bool>();
                          },
                      .partial = one.attr("partial").cast<bool>(),
                      .buffers = [held = share(one.attr("around"))] { return buffers_of(held); }});
  }
  return layers;
}

}  // namespace spdkfac::python
