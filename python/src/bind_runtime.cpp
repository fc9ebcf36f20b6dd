// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include <fmt/ranges.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "bindings.h"
#include "layer_list.h"
#include "plan_source.h"
#include "spdkfac/base/error.h"
#include "spdkfac/base/log.h"
#include "spdkfac/comm/communicator.h"
#include "spdkfac/plan/model_file.h"
#include "spdkfac/plan/plan_file.h"
#include "spdkfac/runtime/counters_json.h"
#include "spdkfac/runtime/describe.h"
#include "spdkfac/runtime/distribution.h"
#include "spdkfac/runtime/preconditioner.h"
#include "spdkfac/runtime/presets.h"
#include "spdkfac/runtime/step_control.h"
#include "spdkfac/runtime/step_meter.h"

namespace spdkfac::python {
namespace {

namespace py = pybind11;

// None, a number, "tokens", or a function of the first input.
ExampleCounter example_counter(py::object examples) {
  if (examples.is_none()) return nullptr;
  if (py::isinstance<py::int_>(examples)) return number_of_examples(examples.cast<std::int64_t>());
  if (py::isinstance<py::str>(examples) && examples.cast<std::string>() == "tokens") {
    return tokens_as_examples();
  }
  if (!PyCallable_Check(examples.ptr())) {
    throw ConfigError(fmt::format(
        "kfac: examples={}; pass a number, \"tokens\", a function of the first input, or None",
        py::str(examples).cast<std::string>()));
  }
  return [held = share(std::move(examples))](const at::Tensor& input, std::int64_t) {
    const py::gil_scoped_acquire lock;
    return py::handle(held.get())(input).cast<std::int64_t>();
  };
}

void bind_options(py::module_& module) {
  py::class_<KfacOptions>(module, "KfacOptions")
      .def(py::init<>())
      .def_readwrite("damping", &KfacOptions::damping)
      .def_readwrite("lm_damping", &KfacOptions::lm_damping)
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
      .def_property(
          "loss_reduction",
          [](const KfacOptions& options) {
            return name_of(loss_reduction_names(), options.loss_reduction);
          },
          [](KfacOptions& options, const std::string& word) {
            options.loss_reduction =
                choice<LossReduction>("loss_reduction", loss_reduction_names(), word);
          })
      .def("set_examples",
           [](KfacOptions& options, py::object examples) {
             options.examples = example_counter(std::move(examples));
           })
      .def_readwrite("kl_clip", &KfacOptions::kl_clip)
      .def_property_readonly(
          "graft", [](const KfacOptions& options) { return name_of(graft_names(), options.graft); })
      // With what else changes with them.
      .def("choose_graft",
           [](KfacOptions& options, const std::string& word) {
             set_graft(options, choice<Graft>("graft", graft_names(), word));
           })
      .def_property_readonly(
          "solver",
          [](const KfacOptions& options) { return name_of(solver_names(), options.solver); })
      .def("choose_solver",
           [](KfacOptions& options, const std::string& word) {
             set_solver(options, choice<Solver>("solver", solver_names(), word));
           })
      .def("choose_interval",
           [](KfacOptions& options, const std::string& word) {
             set_interval(options, choice<Refresh>("interval", refresh_names(), word));
           })
      .def_property_readonly(
          "interval",
          [](const KfacOptions& options) { return name_of(refresh_names(), options.interval); })
      .def("set_graft_adam",
           [](KfacOptions& options, double beta1, double beta2, double epsilon) {
             options.graft_adam = {beta1, beta2, epsilon};
           })
      .def_readwrite("factor_interval", &KfacOptions::factor_interval)
      .def_readwrite("inverse_interval", &KfacOptions::inverse_interval)
      .def_readwrite("refresh_change", &KfacOptions::refresh_change)
      .def_readwrite("spread_refreshes", &KfacOptions::spread_refreshes)
      .def_readwrite("factor_rows", &KfacOptions::factor_rows)
      .def_property(
          "precision",
          [](const KfacOptions& options) { return name_of(precision_names(), options.precision); },
          [](KfacOptions& options, const std::string& word) {
            options.precision = choice<Precision>("precision", precision_names(), word);
          })
      .def_readwrite("norms", &KfacOptions::norms)
      .def_readwrite("max_dimension", &KfacOptions::max_dimension)
      .def_property(
          "large_factors",
          [](const KfacOptions& options) {
            return name_of(large_factors_names(), options.large_factors);
          },
          [](KfacOptions& options, const std::string& word) {
            options.large_factors =
                choice<LargeFactors>("large_factors", large_factors_names(), word);
          })
      .def_property(
          "memory_limit",
          [](const KfacOptions& options) {
            return options.memory_limit ? std::optional(options.memory_limit->value())
                                        : std::nullopt;
          },
          [](KfacOptions& options, std::optional<std::int64_t> bytes) {
            options.memory_limit = bytes ? std::optional(Bytes(*bytes)) : std::nullopt;
          })
      .def_property(
          "patch_memory", [](const KfacOptions& options) { return options.patch_memory.value(); },
          [](KfacOptions& options, std::int64_t bytes) { options.patch_memory = Bytes(bytes); })
      .def_readwrite("trace", &KfacOptions::trace)
      .def_property(
          "sharing",
          [](const KfacOptions& options) { return name_of(sharing_names(), options.sharing); },
          [](KfacOptions& options, const std::string& word) {
            options.sharing = choice<Sharing>("approximation", sharing_names(), word);
          })
      .def("validate", [](const KfacOptions& options) { validate(options); });
  module.def("kfac_preset", &kfac_preset, py::arg("name"));
}

py::dict as_dict(const KfacCounters& counters) {
  py::dict result;
  for (const auto& [name, field] : runtime::counter_fields()) result[name] = counters.*field;
  return result;
}

// Of the tensors of state(); not collective.
std::vector<std::string> state_names(Preconditioner& kfac) {
  const py::gil_scoped_release unlocked;
  std::vector<std::string> names;
  const KfacStateStream stream = kfac.state();
  for (const TensorSpec& spec : stream.tensors()) names.push_back(spec.name);
  return names;
}

// The digest of the options, the counters, and tensors by name.
py::tuple state(Preconditioner& kfac) {
  KfacState state;
  {
    const py::gil_scoped_release unlocked;
    state = kfac.state().read_all();
  }
  return py::make_tuple(state.options, as_dict(state.counters), state.tensors);
}

// Python has what StepControl does as methods of the Preconditioner.
template <class Result, class... Arguments>
auto of_control(Result (StepControl::*method)(Arguments...)) {
  return [method](Preconditioner& kfac, Arguments... arguments) {
    return (StepControl(kfac).*method)(arguments...);
  };
}
template <class Result>
auto of_control(Result (StepControl::*method)() const) {
  return [method](Preconditioner& kfac) { return (StepControl(kfac).*method)(); };
}

void load(Preconditioner& kfac, const std::string& options,
          const std::map<std::string, std::int64_t>& counters,
          const std::map<std::string, at::Tensor>& tensors) {
  KfacState state{options, {}, tensors};
  for (const auto& [name, field] : runtime::counter_fields()) {
    const auto found = counters.find(name);
    if (found == counters.end()) {
      StepControl(kfac).load_failed();
      throw ConfigError(
          fmt::format("kfac state: has no counter {}; load a state that state_dict() "
                      "returned",
                      name));
    }
    state.counters.*field = found->second;
  }
  const py::gil_scoped_release unlocked;
  kfac.load(state);
}

py::dict counters(Preconditioner& kfac) {
  KfacCounters counters;
  {
    const py::gil_scoped_release unlocked;
    counters = kfac.counters();
  }
  return as_dict(counters);
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
    const LayerList& layers, const std::vector<at::Tensor>& parameters, const KfacOptions& options,
    const std::shared_ptr<Communicator>& communicator, const PlanSourceHandle& plans,
    bool send_gradients, bool messages_after_passes, const std::string& model_name,
    std::int64_t profile_steps, const std::string& log_level) {
  Distribution distribution;
  distribution.communicator = communicator;
  distribution.plans = plans.source;
  distribution.send_gradients = send_gradients;
  distribution.messages_after_passes = messages_after_passes;
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
           py::arg("send_gradients"), py::arg("messages_after_passes"), py::arg("model_name"),
           py::arg("profile_steps"), py::arg("log_level"))
      .def(
          "step",
          [](Preconditioner& kfac, double learning_rate, double taken, double carried,
             const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers) {
            Momentum momentum{.taken = taken, .carried = carried, .buffers = {}};
            for (std::size_t i = 0; i < parameters.size(); ++i) {
              momentum.buffers.emplace_back(parameters[i], buffers.at(i));
            }
            kfac.step(learning_rate, momentum);
          },
          py::arg("learning_rate"), py::arg("taken"), py::arg("carried"), py::arg("parameters"),
          py::arg("buffers"), unlocked)
      .def(
          "change",
          [](Preconditioner& kfac, std::optional<double> damping, std::optional<double> kl_clip,
             std::optional<std::int64_t> factor_interval,
             std::optional<std::int64_t> inverse_interval) {
            kfac.change({damping, kl_clip, factor_interval, inverse_interval});
          },
          py::kw_only(), py::arg("damping") = py::none(), py::arg("kl_clip") = py::none(),
          py::arg("factor_interval") = py::none(), py::arg("inverse_interval") = py::none(),
          unlocked)
      .def_property_readonly("options", &Preconditioner::options, py::return_value_policy::copy)
      .def_property_readonly("judges_damping", of_control(&StepControl::judges_damping))
      .def("judge_damping", of_control(&StepControl::judge_damping), py::arg("loss_before"),
           py::arg("loss_after"), unlocked)
      .def("synchronize", &Preconditioner::synchronize, unlocked)
      .def("discard", &Preconditioner::discard, unlocked)
      .def("gradients_zeroed", of_control(&StepControl::gradients_zeroed), unlocked)
      .def("set_loss_scale",
           [](Preconditioner& kfac, py::object scale) {
             StepControl(kfac).set_loss_scale([held = share(std::move(scale))] {
               const py::gil_scoped_acquire lock;
               return py::handle(held.get())().cast<at::Tensor>();
             });
           })
      .def("require_recordable", of_control(&StepControl::require_recordable))
      .def_property_readonly("variant", of_control(&StepControl::variant))
      .def("count_replayed_step", of_control(&StepControl::count_replayed_step))
      .def("set_rate",
           [](Preconditioner& kfac, const std::optional<at::Tensor>& rate) {
             StepControl(kfac).set_rate(rate.value_or(at::Tensor()));
           })
      .def_property_readonly("unseen_layers", of_control(&StepControl::unseen_layers))
      .def_property_readonly("wants_calls", of_control(&StepControl::wants_calls))
      .def_property_readonly("counters", &counters)
      .def_property_readonly("memory", &memory)
      .def_property_readonly("plan",
                             [](const Preconditioner& kfac) {
                               const auto& plan = kfac.plan();
                               return plan ? std::optional(to_json(*plan).dump()) : std::nullopt;
                             })
      .def_property_readonly(
          "model", [](const Preconditioner& kfac) { return to_json(kfac.model()).dump(); })
      .def("trace",
           [](Preconditioner& kfac) {
             std::ostringstream text;
             StepMeter(kfac).trace().write_perfetto(text);
             return text.str();
           })
      .def_property_readonly("state_names", &state_names)
      .def("state", &state)
      .def("load", &load)
      .def("load_failed", of_control(&StepControl::load_failed), unlocked);
}

}  // namespace

void bind_runtime(py::module_& module) {
  bind_options(module);
  bind_preconditioner(module);
  module.def("counter_names", [] {
    std::vector<std::string> names;
    for (const auto& [name, field] : runtime::counter_fields()) names.emplace_back(name);
    return names;
  });
  module.def("describe", [](const std::string& name, const LayerList& layers,
                            const std::vector<at::Tensor>& parameters, const py::function& forward,
                            std::int64_t batch, const std::vector<std::int64_t>& input,
                            const KfacOptions& options) {
    const ModelSpec model = describe(
        name, layers_of(layers), parameters, [&] { forward(); }, batch, input,
        options.factor_limit());
    return to_json(model).dump();
  });
}

}  // namespace spdkfac::python
