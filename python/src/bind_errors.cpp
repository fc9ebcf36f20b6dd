// SPDX-License-Identifier: Apache-2.0
#include <exception>

#include "bindings.h"
#include "spdkfac/base/error.h"

namespace spdkfac::python {
namespace {

namespace py = pybind11;

// Lives as long as the interpreter, as exceptions may come at any time.
struct ErrorTypes {
  PyObject* error = nullptr;
  PyObject* config = nullptr;
  PyObject* comm = nullptr;
  PyObject* numerical = nullptr;
};

ErrorTypes& error_types() {
  static ErrorTypes types;
  return types;
}

PyObject* add_error(py::module_& module, const char* name, const char* doc, py::handle bases) {
  const std::string full = std::string("spdkfac.") + name;
  PyObject* type = PyErr_NewExceptionWithDoc(full.c_str(), doc, bases.ptr(), nullptr);
  if (type == nullptr) throw py::error_already_set();
  module.add_object(name, type);
  return type;
}

void translate(std::exception_ptr exception) {
  try {
    if (exception) std::rethrow_exception(exception);
  } catch (const ConfigError& error) {
    PyErr_SetString(error_types().config, error.what());
  } catch (const CommError& error) {
    PyErr_SetString(error_types().comm, error.what());
  } catch (const NumericalError& error) {
    PyErr_SetString(error_types().numerical, error.what());
  } catch (const Error& error) {
    PyErr_SetString(error_types().error, error.what());
  }
}

}  // namespace

void bind_errors(py::module_& module) {
  ErrorTypes& types = error_types();
  types.error =
      add_error(module, "Error", "Base class of all errors of spdkfac.", PyExc_RuntimeError);
  const py::tuple config = py::make_tuple(py::handle(types.error), py::handle(PyExc_ValueError));
  types.config = add_error(module, "ConfigError", "A mistake in options, files or usage.", config);
  types.comm = add_error(module, "CommError",
                         "Another rank died, disagrees or does not answer in time.", types.error);
  types.numerical =
      add_error(module, "NumericalError",
                "A matrix that cannot be inverted, or a loss that diverged.", types.error);
  py::register_exception_translator(translate);
}

}  // namespace spdkfac::python
