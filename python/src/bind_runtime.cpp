// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <sstream>
#include <tuple>

#include <fmt/ranges.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/utils/pybind.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include "bindings.h"
#include "spdkfac/base/error.h"
#include "spdkfac/base/log.h"
#include "spdkfac/comm/c10d.h"
#include "spdkfac/runtime/describe.h"
#include "spdkfac/runtime/distribution.h"
#include "spdkfac/runtime/preconditioner.h"
#include "spdkfac/runtime/step_meter.h"

namespace spdkfac::python {
namespace {

namespace py = pybind11;

// A reference to a Python object that may be copied and dropped without the interpreter's lock.
using SharedObject = std::shared_ptr<PyObject>;

SharedObject share(py::object object) {
  return SharedObject(object.release().ptr(), [](PyObject* held) {
    if (Py_IsInitialized() == 0) return;
    const py::gil_scoped_acquire lock;
    Py_DECREF(held);
  });
}

// Name, weight, bias or None, and the module whose attribute `training` says whether it counts.
using LayerTuple = std::tuple<std::string, at::Tensor, std::optional<at::Tensor>, py::object>;

std::vector<TrackedLayer> layers_of(const std::vector<LayerTuple>& tuples) {
  std::vector<TrackedLayer> layers;
  for (const auto& [name, weight, bias, module] : tuples) {
    layers.push_back({.name = name,
                      .weight = weight,
                      .bias = bias.value_or(at::Tensor()),
                      .training = [held = share(module)] {
                        const py::gil_scoped_acquire lock;
                        return py::handle(held.get()).attr("training").cast<bool>();
                      }});
  }
  return layers;
}

template <class Enum>
Enum choice(const char* field, const std::vector<std::string>& names, const std::string& word) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == word) return static_cast<Enum>(i);
  }
  throw ConfigError(
      fmt::format("kfac: {}={}; pass one of {}", field, word, fmt::join(names, ", ")));
}

void bind_options(py::module_& module) {
  py::class_<KfacOptions>(module, "KfacOptions")
      .def(py::init<>())
      .def_readwrite("damping", &KfacOptions::damping)
      .def_property(
          "damping_mode",
          [](const KfacOptions& options) { return name_of(damping_names(), options.damping_mode); },
          [](KfacOptions& options, const std::string& word) {
            options.damping_mode = choice<Damping>("damping_mode", damping_names(), word);
          })
      .def_readwrite("running_average", &KfacOptions::running_average)
      .def_readwrite("identity_start", &KfacOptions::identity_start)
      .def_property(
          "convention",
          [](const KfacOptions& options) {
            return name_of(convention_names(), options.convention);
          },
          [](KfacOptions& options, const std::string& word) {
            options.convention = choice<Convention>("convention", convention_names(), word);
          })
      .def_readwrite("kl_clip", &KfacOptions::kl_clip)
      .def_readwrite("factor_interval", &KfacOptions::factor_interval)
      .def_readwrite("inverse_interval", &KfacOptions::inverse_interval)
      .def_property(
          "precision",
          [](const KfacOptions& options) { return name_of(precision_names(), options.precision); },
          [](KfacOptions& options, const std::string& word) {
            options.precision = choice<Precision>("precision", precision_names(), word);
          })
      .def_property(
          "patch_memory", [](const KfacOptions& options) { return options.patch_memory.value(); },
          [](KfacOptions& options, std::int64_t bytes) { options.patch_memory = Bytes(bytes); })
      .def_readwrite("trace", &KfacOptions::trace)
      .def("validate", [](const KfacOptions& options) { validate(options); });
}

void bind_communicator(py::module_& module) {
  py::class_<Communicator, std::shared_ptr<Communicator>>(module, "Communicator")
      .def_property_readonly("rank", &Communicator::rank)
      .def_property_readonly("size", &Communicator::size)
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

// Opaque to Python: where the plans of a Preconditioner come from.
struct PlanSourceHandle {
  PlanSource source;
};

void bind_plan_source(py::module_& module) {
  py::class_<PlanSourceHandle>(module, "PlanSource")
      .def_static(
          "measure",
          [](const PlanOptions& options, const std::string& transport) {
            return PlanSourceHandle{MeasureHere{.options = options, .transport = transport}};
          })
      .def_static("of_costs",
                  [](const CostModel& costs, const PlanOptions& options) {
                    return PlanSourceHandle{PlanForCosts{costs, options}};
                  })
      .def_static("of_plan", [](const Plan& plan) { return PlanSourceHandle{FollowPlan{plan}}; });
}

at::Tensor save(Preconditioner& kfac) {
  torch::serialize::OutputArchive archive;
  kfac.save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  const std::string bytes = std::move(stream).str();
  at::Tensor state = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
  std::copy(bytes.begin(), bytes.end(), static_cast<char*>(state.mutable_data_ptr()));
  return state;
}

void load(Preconditioner& kfac, const at::Tensor& state) {
  const at::Tensor bytes = state.to(at::kCPU).contiguous();
  torch::serialize::InputArchive archive;
  try {
    archive.load_from(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes());
  } catch (const c10::Error& error) {
    throw ConfigError(
        fmt::format("kfac state: cannot be read ({}); load a state that state_dict() returned",
                    error.what_without_backtrace()));
  }
  kfac.load(archive);
}

py::dict counters(Preconditioner& kfac) {
  KfacCounters counters;
  {
    const py::gil_scoped_release unlocked;
    counters = kfac.counters();
  }
  py::dict result;
  result["steps"] = counters.steps;
  result["factor_updates"] = counters.factor_updates;
  result["inverse_updates"] = counters.inverse_updates;
  result["nonfinite_factors"] = counters.nonfinite_factors;
  result["inverse_retries"] = counters.inverse_retries;
  result["inverses_kept"] = counters.inverses_kept;
  result["nonfinite_gradients"] = counters.nonfinite_gradients;
  result["layers_without_factors"] = counters.layers_without_factors;
  return result;
}

py::dict memory(const Preconditioner& kfac) {
  const KfacMemory memory = kfac.memory();
  py::dict result;
  result["factors"] = memory.factors.value();
  result["inverses"] = memory.inverses.value();
  result["buffers"] = memory.buffers.value();
  return result;
}

std::unique_ptr<Preconditioner> make_preconditioner(
    const std::vector<LayerTuple>& layers, const std::vector<at::Tensor>& parameters,
    const KfacOptions& options, const std::shared_ptr<Communicator>& communicator,
    const PlanSourceHandle& plans, bool send_gradients, const std::string& model_name,
    std::int64_t profile_steps, const std::string& log_level) {
  Distribution distribution;
  distribution.communicator = communicator;
  distribution.plans = plans.source;
  distribution.send_gradients = send_gradients;
  distribution.model_name = model_name;
  distribution.profile_steps = profile_steps;
  LogOptions log{.level = log_level};
  if (communicator) {
    log.rank = communicator->rank();
    log.world = communicator->size();
  }
  std::vector<TrackedLayer> tracked = layers_of(layers);
  const auto logger = make_logger(log);
  const py::gil_scoped_release unlocked;
  return std::make_unique<Preconditioner>(std::move(tracked), parameters, options, distribution,
                                          logger);
}

void bind_preconditioner(py::module_& module) {
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  py::class_<Preconditioner>(module, "Preconditioner")
      .def(py::init(&make_preconditioner), py::arg("layers"), py::arg("parameters"),
           py::arg("options"), py::kw_only(), py::arg("communicator"), py::arg("plans"),
           py::arg("send_gradients"), py::arg("model_name"), py::arg("profile_steps"),
           py::arg("log_level"))
      .def("step", py::overload_cast<double>(&Preconditioner::step), unlocked)
      .def("synchronize", &Preconditioner::synchronize, unlocked)
      .def("discard", &Preconditioner::discard, unlocked)
      .def("set_loss_scale",
           [](Preconditioner& kfac, py::object scale) {
             kfac.set_loss_scale([held = share(std::move(scale))] {
               const py::gil_scoped_acquire lock;
               return py::handle(held.get())().cast<at::Tensor>();
             });
           })
      .def_property_readonly("counters", &counters)
      .def_property_readonly("memory", &memory)
      .def_property_readonly("plan", [](const Preconditioner& kfac) { return kfac.plan(); })
      .def_property_readonly("model", &Preconditioner::model, py::return_value_policy::copy)
      .def("trace",
           [](Preconditioner& kfac) {
             std::ostringstream text;
             StepMeter(kfac).trace().write_perfetto(text);
             return text.str();
           })
      .def("save", &save, unlocked)
      .def("load", &load, unlocked);
}

}  // namespace

void bind_runtime(py::module_& module) {
  bind_options(module);
  bind_communicator(module);
  bind_plan_source(module);
  bind_preconditioner(module);
  module.def("describe", [](const std::string& name, const std::vector<LayerTuple>& layers,
                            const std::vector<at::Tensor>& parameters, const py::function& forward,
                            std::int64_t batch, const std::vector<std::int64_t>& input) {
    return describe(
        name, layers_of(layers), parameters, [&] { forward(); }, batch, input);
  });
}

}  // namespace spdkfac::python
