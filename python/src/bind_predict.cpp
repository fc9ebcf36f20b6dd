// SPDX-License-Identifier: Apache-2.0
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <pybind11/stl.h>

#include "bindings.h"
#include "spdkfac/report/prediction.h"
#include "spdkfac/report/record.h"
#include "spdkfac/report/run.h"
#include "spdkfac/sim/predict.h"

namespace spdkfac::python {
namespace {

namespace py = pybind11;

Prediction predict_plan(const ModelSpec& model, const CostModel& costs, const Plan& plan,
                        const SimulationOptions& simulation) {
  validate_against(plan, model, "plan");
  return predict(model, costs, plan, simulation);
}

py::dict breakdown_of(const Prediction& prediction) {
  py::dict parts;
  for (const Category category : kCategories) {
    const std::string name(category_name(category));
    parts[name.c_str()] = prediction.result.breakdown[category].value();
  }
  return parts;
}

// A record of docs/records.md, for a page, of predictions at the same intervals.
std::string record_of(const std::vector<Prediction>& list) {
  report::RecordHead head;
  head.experiment = "iteration";
  if (!list.empty()) head.cluster = list.front().cluster;
  if (!list.empty() && list.front().intervals.inverses > 1) {
    head.note = fmt::format(
        "Averages of a refresh cycle: factors every {} and inverses every {} steps. Events are "
        "those of its full step.",
        list.front().intervals.factors, list.front().intervals.inverses);
  }
  std::vector<report::Run> runs;
  for (const Prediction& one : list) {
    report::Run run;
    run.model = one.model;
    run.world = one.world;
    run.algorithm = run.label = one.algorithm;
    run.forecast = one.result;
    runs.push_back(std::move(run));
  }
  Json record = to_json(head);
  record["runs"] = report::runs_json(runs);
  return record.dump();
}

std::string perfetto(const Trace& trace) {
  std::ostringstream text;
  trace.write_perfetto(text);
  return text.str();
}

}  // namespace

void bind_predict(py::module_& module) {
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  py::class_<SimulationOptions>(module, "SimulationOptions")
      .def(py::init([](std::map<int, double> slow, double jitter, std::uint64_t seed) {
        return SimulationOptions{.slow = std::move(slow), .jitter = jitter, .seed = seed};
      }));
  py::class_<Prediction>(module, "Prediction")
      .def_static("from_json",
                  [](const std::string& text, const std::string& where) {
                    return report::parse_prediction(parse_json(text, where), where);
                  })
      .def("to_json", [](const Prediction& one) { return report::to_json(one).dump(1); })
      .def_readonly("algorithm", &Prediction::algorithm)
      .def_readonly("model", &Prediction::model)
      .def_readonly("cluster", &Prediction::cluster)
      .def_readonly("batch", &Prediction::batch)
      .def_readonly("world", &Prediction::world)
      .def_property_readonly("factor_interval",
                             [](const Prediction& one) { return one.intervals.factors; })
      .def_property_readonly("inverse_interval",
                             [](const Prediction& one) { return one.intervals.inverses; })
      .def_property_readonly("iteration",
                             [](const Prediction& one) { return one.result.iteration.value(); })
      .def_property_readonly("slowest_step",
                             [](const Prediction& one) { return one.full_step.value(); })
      .def_property_readonly("breakdown", &breakdown_of)
      .def_property_readonly("bytes_per_worker",
                             [](const Prediction& one) { return one.result.sent_bytes; })
      .def_property_readonly(
          "exposed_communication",
          [](const Prediction& one) { return exposed_communication(one.result.breakdown).value(); })
      .def_readonly("plan", &Prediction::plan)
      .def("trace", [](const Prediction& one) { return perfetto(one.result.trace); })
      .def("text", [](const Prediction& one) { return report::describe(one); });
  module.def("predict_plan", &predict_plan, unlocked);
  module.def(
      "predict",
      [](const ModelSpec& model, const CostModel& costs, int world, const PlanOptions& options,
         std::int64_t factor_interval, std::int64_t inverse_interval, std::int64_t growing_over,
         bool spread, const SimulationOptions& simulation) {
        const RefreshIntervals intervals{factor_interval, inverse_interval, growing_over, spread};
        return predict(model, costs, world, options, intervals, simulation);
      },
      unlocked);
  module.def("compared_algorithms", &compared_algorithms);
  module.def("compared_intervals", [] {
    py::list list;
    for (const RefreshIntervals& one : compared_intervals()) {
      list.append(py::make_tuple(one.factors, one.inverses));
    }
    return list;
  });
  module.def("category_titles", [] {
    py::dict titles;
    for (const Category category : kCategories) {
      const std::string name(category_name(category));
      titles[name.c_str()] = std::string(report::category_title(category));
    }
    return titles;
  });
  module.def("comparison_text",
             [](const std::vector<Prediction>& list) { return report::comparison_text(list); });
  module.def("comparison_csv",
             [](const std::vector<Prediction>& list) { return report::comparison_csv(list); });
  module.def("record_of", &record_of);
}

}  // namespace spdkfac::python
