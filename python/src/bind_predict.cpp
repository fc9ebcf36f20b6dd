// SPDX-License-Identifier: Apache-2.0
#include <sstream>

#include <pybind11/stl.h>

#include "bindings.h"
#include "spdkfac/report/predict.h"
#include "spdkfac/report/record.h"

namespace spdkfac::python {
namespace {

namespace py = pybind11;
using report::Predicted;

Predicted predict_plan(const ModelSpec& model, const CostModel& costs, const Plan& plan,
                       const SimulationOptions& simulation) {
  validate_against(plan, model, "plan");
  return report::predict(model, costs, plan, simulation);
}

py::dict breakdown_of(const Predicted& predicted) {
  py::dict parts;
  for (const Category category : kCategories) {
    const std::string name(category_name(category));
    parts[name.c_str()] = predicted.prediction.breakdown[category].value();
  }
  return parts;
}

std::vector<Prediction> predictions_of(const std::vector<Predicted>& list) {
  std::vector<Prediction> result;
  for (const Predicted& one : list) result.push_back(one.prediction);
  return result;
}

// A record of docs/records.md, for a page.
std::string record_of(const std::vector<Predicted>& list) {
  RecordHead head;
  head.experiment = "iteration";
  if (!list.empty()) head.cluster = list.front().prediction.cluster;
  Json record = to_json(head);
  record["runs"] = Json::array();
  for (const Predicted& one : list) {
    Run run;
    run.model = one.prediction.model;
    run.world = one.prediction.world;
    run.algorithm = run.label = one.prediction.algorithm;
    run.predicted = run_times(one);
    record["runs"].push_back(to_json(run));
  }
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
  py::class_<Predicted>(module, "Prediction")
      .def_static("from_json",
                  [](const std::string& text, const std::string& where) {
                    Predicted result;
                    result.prediction = parse_prediction(parse_json(text, where), where);
                    return result;
                  })
      .def("to_json", [](const Predicted& one) { return to_json(one.prediction).dump(1); })
      .def_property_readonly("algorithm",
                             [](const Predicted& one) { return one.prediction.algorithm; })
      .def_property_readonly("model", [](const Predicted& one) { return one.prediction.model; })
      .def_property_readonly("cluster", [](const Predicted& one) { return one.prediction.cluster; })
      .def_property_readonly("batch", [](const Predicted& one) { return one.prediction.batch; })
      .def_property_readonly("world", [](const Predicted& one) { return one.prediction.world; })
      .def_property_readonly("iteration",
                             [](const Predicted& one) { return one.prediction.iteration.value(); })
      .def_property_readonly("breakdown", &breakdown_of)
      .def_property_readonly("bytes_per_worker",
                             [](const Predicted& one) { return one.prediction.bytes_per_worker; })
      .def_property_readonly("exposed_communication",
                             [](const Predicted& one) {
                               return exposed_communication(one.prediction.breakdown).value();
                             })
      .def_property_readonly("plan", [](const Predicted& one) { return one.plan; })
      .def("trace", [](const Predicted& one) { return perfetto(one.trace); })
      .def("text", [](const Predicted& one) { return describe(one.prediction); });
  module.def("predict_plan", &predict_plan, unlocked);
  module.def(
      "predict",
      [](const ModelSpec& model, const CostModel& costs, int world, const PlanOptions& options,
         std::int64_t factor_interval, std::int64_t inverse_interval,
         const SimulationOptions& simulation) {
        const RefreshIntervals intervals{factor_interval, inverse_interval};
        return report::predict(model, costs, world, options, intervals, simulation);
      },
      unlocked);
  module.def("compared_algorithms", &report::compared_algorithms);
  module.def("category_titles", [] {
    py::dict titles;
    for (const Category category : kCategories) {
      const std::string name(category_name(category));
      titles[name.c_str()] = std::string(category_title(category));
    }
    return titles;
  });
  module.def("comparison_text", [](const std::vector<Predicted>& list) {
    return comparison_text(predictions_of(list));
  });
  module.def("comparison_csv", [](const std::vector<Predicted>& list) {
    return comparison_csv(predictions_of(list));
  });
  module.def("record_of", &record_of);
}

}  // namespace spdkfac::python
