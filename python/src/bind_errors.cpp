// SPDX-License-Identifier: Apache-2.0
#include <exception>

#include "bindings.h"
#include "spdkfac/base/error.h"

namespace spdkfac::python {
namespace {

namespace py = pybind11;

// They live as long as the interpreter, as exceptions may come at any time.
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

void bind_errors() {
  const py::module_ errors = py::module_::import("spdkfac.errors");
  const auto type = [&](const char* name) {
    return errors.attr(name).cast<py::object>().release().ptr();
  };
  error_types() = {.error = type("Error"),
                   .config = type("ConfigError"),
                   .comm = type("CommError"),
                   .numerical = type("NumericalError")};
  py::register_exception_translator(translate);
}

}  // namespace spdkfac::python
