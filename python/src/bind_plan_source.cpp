// SPDX-License-Identifier: Apache-2.0
#include "bindings.h"
#include "plan_source.h"
#include "spdkfac/base/json.h"
#include "spdkfac/plan/cluster_file.h"
#include "spdkfac/plan/plan_file.h"
#include "spdkfac/plan/plan_options_file.h"

namespace spdkfac::python {
namespace {

namespace py = pybind11;

PlanOptions options_from(const std::string& algorithm, const std::string& options) {
  return parse_plan_options(JsonValue(parse_json(options, "options"), "options"), algorithm);
}

}  // namespace

void bind_plan_source(py::module_& module) {
  py::class_<PlanSourceHandle>(module, "PlanSource")
      .def_static("measure",
                  [](const std::string& algorithm, const std::string& options,
                     const std::string& transport) {
                    return PlanSourceHandle{MeasureHere{.options = options_from(algorithm, options),
                                                        .transport = transport}};
                  })
      .def_static(
          "of_costs",
          [](const std::string& costs, const std::string& algorithm, const std::string& options) {
            return PlanSourceHandle{
                PlanForCosts{parse_cluster(parse_json(costs, "cluster"), "cluster"),
                             options_from(algorithm, options)}};
          })
      .def_static("of_plan", [](const std::string& plan) {
        return PlanSourceHandle{FollowPlan{parse_plan(parse_json(plan, "plan"), "plan")}};
      });
}

}  // namespace spdkfac::python
