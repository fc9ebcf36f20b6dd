// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "bindings.h"
#include "layer_list.h"
#include "spdkfac/base/tensor_file.h"
#include "spdkfac/runtime/curvature.h"
#include "spdkfac/runtime/state_parts.h"

namespace spdkfac::python {
namespace {

namespace py = pybind11;

using Texts = std::map<std::string, std::string>;
using Tensors = std::map<std::string, at::Tensor>;

// Undefined ones are None.
std::vector<std::optional<at::Tensor>> example_gradients(const Curvature& curvature) {
  std::vector<std::optional<at::Tensor>> result;
  for (const at::Tensor& one : curvature.example_gradients()) {
    result.push_back(one.defined() ? std::optional(one) : std::nullopt);
  }
  return result;
}

using Factors = std::tuple<at::Tensor, at::Tensor, double, double>;

std::vector<Factors> factors(Curvature& curvature,
                             const std::shared_ptr<Communicator>& communicator) {
  const auto used = communicator ? communicator : make_local_communicator();
  std::vector<Factors> result;
  for (const Curvature::LayerFactors& one : curvature.factors(*used)) {
    result.emplace_back(one.a, one.g, one.examples, one.rows);
  }
  return result;
}

void write_tensors(const std::string& path, const Texts& metadata, const Tensors& tensors) {
  TensorHeader header{metadata, {}};
  for (const auto& [name, tensor] : tensors) {
    header.tensors.push_back(runtime::spec_of(name, tensor));
  }
  aligned_order(header.tensors);
  TensorFileWriter writer(path, header);
  for (const TensorSpec& spec : header.tensors) {
    const at::Tensor here = tensors.at(spec.name).detach().cpu().contiguous();
    writer.append(here.const_data_ptr(), here.nbytes());
  }
  writer.finish();
}

std::pair<Texts, Tensors> read_tensors(const std::string& path) {
  const TensorFileReader reader{std::filesystem::path(path)};
  Tensors tensors;
  for (std::size_t index = 0; index < reader.header().tensors.size(); ++index) {
    const TensorSpec& spec = reader.header().tensors[index];
    const at::Tensor tensor = at::empty(spec.shape, runtime::dtype_of(spec.dtype));
    reader.read(index, tensor.mutable_data_ptr());
    tensors[spec.name] = tensor;
  }
  return {reader.header().metadata, tensors};
}

}  // namespace

void bind_curvature(py::module_& module) {
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  py::class_<Curvature>(module, "Curvature")
      .def(py::init([](const LayerList& layers, const std::vector<at::Tensor>& parameters,
                       const KfacOptions& options) {
        return std::make_unique<Curvature>(layers_of(layers), parameters, options);
      }))
      .def(
          "begin",
          [](Curvature& curvature, std::int64_t examples, bool sums) {
            curvature.begin(examples, sums ? Curvature::Purpose::kFactors
                                           : Curvature::Purpose::kExampleGradients);
          },
          py::arg("examples"), py::kw_only(), py::arg("sums"))
      .def("backward", &Curvature::backward, py::arg("outputs"), py::arg("vector"), py::kw_only(),
           py::arg("again"), unlocked)
      .def("example_gradients", &example_gradients)
      .def("end", &Curvature::end, unlocked)
      .def("factors", &factors, py::arg("communicator"), unlocked);
  module.def("write_tensors", &write_tensors, unlocked);
  module.def("read_tensors", &read_tensors, unlocked);
}

}  // namespace spdkfac::python
