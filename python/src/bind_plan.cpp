// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include <pybind11/stl.h>

#include "bindings.h"
#include "spdkfac/base/json.h"
#include "spdkfac/plan/cluster_file.h"
#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/plan/model_file.h"
#include "spdkfac/plan/plan.h"
#include "spdkfac/plan/plan_file.h"
#include "spdkfac/plan/plan_options.h"
#include "spdkfac/plan/plan_options_file.h"
#include "spdkfac/plan/refresh_intervals.h"
#include "spdkfac/report/layer_table.h"
#include "spdkfac/report/plan_text.h"
#include "spdkfac/sim/auto_planner.h"

namespace spdkfac::python {
namespace {

namespace py = pybind11;

// The preset of an algorithm with the fields of a JSON object in the form of a plan's options.
PlanOptions plan_options(const std::string& algorithm, const std::string& changes) {
  PlanOptions options = preset(algorithm);
  Json fields = to_json(options);
  const Json given = parse_json(changes, "options");
  for (const auto& [name, value] : given.items()) fields[name] = value;
  options = parse_plan_options(JsonValue(fields, "options"), algorithm);
  validate(options);
  return options;
}

py::list algorithms(bool all_methods) {
  py::list list;
  const auto add = [&](const std::vector<AlgorithmInfo>& algorithms) {
    for (const AlgorithmInfo& info : algorithms) {
      list.append(py::make_tuple(info.name, info.paper_name, info.summary));
    }
  };
  add(named_algorithms());
  list.append(py::make_tuple(kAutoAlgorithm, "", "the K-FAC variant with the fastest forecast"));
  if (all_methods) add(other_methods());
  return list;
}

void bind_models(py::module_& module) {
  py::class_<LayerSpec>(module, "Layer")
      .def_readonly("name", &LayerSpec::name)
      .def_property_readonly("kind",
                             [](const LayerSpec& layer) {
                               return layer_kind_names()[static_cast<std::size_t>(layer.kind)];
                             })
      .def_readonly("d_a", &LayerSpec::d_a)
      .def_readonly("d_g", &LayerSpec::d_g)
      .def_readonly("groups", &LayerSpec::groups)
      .def_readonly("blocks_a", &LayerSpec::blocks_a)
      .def_readonly("blocks_g", &LayerSpec::blocks_g)
      .def_readonly("bias", &LayerSpec::bias)
      .def_readonly("positions", &LayerSpec::positions)
      .def_property_readonly("parameters", &LayerSpec::gradient_elements);
  py::class_<ModelSpec>(module, "Model")
      .def_static("from_json",
                  [](const std::string& text, const std::string& where) {
                    return parse_model(parse_json(text, where), where);
                  })
      .def("to_json", [](const ModelSpec& model) { return to_json(model).dump(1); })
      .def_readonly("name", &ModelSpec::name)
      .def_readwrite("batch", &ModelSpec::batch)
      .def_readonly("input", &ModelSpec::input)
      .def_readonly("parameters", &ModelSpec::parameters)
      .def_readonly("layers", &ModelSpec::layers)
      .def("text", &report::layer_table);
}

void bind_clusters(py::module_& module) {
  py::class_<CostModel>(module, "Cluster")
      .def_static("from_json",
                  [](const std::string& text, const std::string& where) {
                    return parse_cluster(parse_json(text, where), where);
                  })
      .def("to_json", [](const CostModel& costs) { return to_json(costs).dump(1); })
      .def_readonly("name", &CostModel::name)
      .def_readonly("world", &CostModel::world)
      .def("for_world", &CostModel::for_world)
      .def("all_reduce_time",
           [](const CostModel& costs, std::int64_t elements) {
             return costs.all_reduce.time(elements).value();
           })
      .def("broadcast_time",
           [](const CostModel& costs, std::int64_t elements) {
             return costs.broadcast.time(elements).value();
           })
      .def("inverse_time", [](const CostModel& costs, std::int64_t dim) {
        return costs.inverse_time(dim).value();
      });
}

py::list owners(const Plan& plan) {
  py::list list;
  for (const FactorPlacement& factor : plan.placements) {
    list.append(py::make_tuple(factor.layer, factor.side == FactorSide::kA ? "a" : "g", factor.dim,
                               factor.owner));
  }
  return list;
}

py::list messages(const Plan& plan) {
  py::list list;
  for (const Message& message : plan.messages) {
    list.append(py::make_tuple(describe(message), message.elements));
  }
  return list;
}

void bind_plans(py::module_& module) {
  py::class_<PlanOptions>(module, "PlanOptions")
      .def(py::init(&plan_options))
      .def_readonly("algorithm", &PlanOptions::algorithm)
      .def_property_readonly("second_order", &PlanOptions::second_order)
      .def("require_trainable", &require_trainable)
      .def("to_json", [](const PlanOptions& options) { return to_json(options).dump(); });
  py::class_<Plan>(module, "Plan")
      .def_static("from_json",
                  [](const std::string& text, const std::string& where) {
                    return parse_plan(parse_json(text, where), where);
                  })
      .def("to_json", [](const Plan& plan) { return to_json(plan).dump(1); })
      .def_readonly("algorithm", &Plan::algorithm)
      .def_readonly("model", &Plan::model)
      .def_readonly("world", &Plan::world)
      .def_property_readonly("options", [](const Plan& plan) { return plan.options; })
      .def_property_readonly("step",
                             [](const Plan& plan) { return name_of(step_names(), plan.step); })
      .def_property_readonly("digest", &Plan::digest)
      .def_property_readonly("owners", &owners)
      .def_property_readonly("messages", &messages)
      .def_property_readonly("iteration",
                             [](const Plan& plan) {
                               return plan.predicted_iteration
                                          ? std::optional(plan.predicted_iteration->value())
                                          : std::nullopt;
                             })
      .def("validate",
           [](const Plan& plan, const ModelSpec& model) { validate_against(plan, model, "plan"); })
      .def("text", [](const Plan& plan, const ModelSpec& model, const CostModel& costs, bool full) {
        return report::plan_text(plan, model, costs.for_world(plan.world), full);
      });
}

}  // namespace

void bind_plan(py::module_& module) {
  bind_models(module);
  bind_clusters(module);
  bind_plans(module);
  module.def("algorithms", &algorithms, py::arg("all_methods") = false);
  module.def("most_of_growing_intervals",
             [] { return std::pair(kMostOfGrowing.factors, kMostOfGrowing.inverses); });
}

}  // namespace spdkfac::python
