// SPDX-License-Identifier: Apache-2.0
// The paper's table of iteration times on 64 workers, predicted with the cluster file that was
// fitted to the paper's figures.
#include <cmath>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/plan/planner.h"
#include "spdkfac/sim/auto_planner.h"
#include "spdkfac/sim/simulator.h"

namespace spdkfac {
namespace {

constexpr int kWorkers = 64;

struct PaperRow {
  std::string model;
  double d_kfac = 0;  // seconds, as printed
  double mpd_kfac = 0;
  double spd_kfac = 0;
};
void PrintTo(const PaperRow& row, std::ostream* out) { *out << row.model; }

const std::vector<PaperRow> kPaperTable = {{"resnet50", 0.8525, 0.7635, 0.6755},
                                           {"resnet152", 1.5807, 1.3933, 1.1689},
                                           {"densenet201", 1.4964, 1.5340, 1.3615},
                                           {"inception-v4", 1.1857, 1.1473, 0.9907}};

struct Comparison {
  std::string algorithm;
  double paper = 0;
  double predicted = 0;
  double error() const { return std::abs(predicted - paper) / paper; }
};

const std::filesystem::path kData = std::filesystem::path(SPDKFAC_SOURCE_DIR) / "data";

double predicted(const std::string& model_name, const std::string& algorithm) {
  const ModelSpec model = read_model(kData / "models" / (model_name + ".json"));
  const CostModel costs = read_cluster(kData / "clusters" / "paper-64x2080ti.json");
  const Plan plan = make_best_plan(model, costs, kWorkers, preset(algorithm), {});
  return simulate(plan, model, costs).iteration.value();
}

std::vector<Comparison> compare(const PaperRow& row) {
  return {{"d-kfac", row.d_kfac, predicted(row.model, "d-kfac")},
          {"mpd-kfac", row.mpd_kfac, predicted(row.model, "mpd-kfac")},
          {"spd-kfac", row.spd_kfac, predicted(row.model, "spd-kfac")}};
}

class PaperTable : public ::testing::TestWithParam<PaperRow> {};

TEST_P(PaperTable, EveryTimeIsWithinTenPercent) {
  for (const Comparison& entry : compare(GetParam())) {
    EXPECT_LE(entry.error(), 0.10) << entry.algorithm << ": paper " << entry.paper
                                   << " s, predicted " << entry.predicted << " s";
  }
}

TEST_P(PaperTable, AlgorithmsThatDifferByMoreThanThreePercentAreInTheRightOrder) {
  const std::vector<Comparison> entries = compare(GetParam());
  for (const Comparison& faster : entries) {
    for (const Comparison& slower : entries) {
      if (slower.paper <= 1.03 * faster.paper) continue;
      EXPECT_LT(faster.predicted, slower.predicted)
          << faster.algorithm << " should be faster than " << slower.algorithm;
    }
  }
}

TEST_P(PaperTable, AutoIsAtLeastAQuarterFasterThanSpdKfac) {
  const double spd_kfac = predicted(GetParam().model, "spd-kfac");
  const double chosen = predicted(GetParam().model, "auto");
  EXPECT_GE(spd_kfac / chosen, 1.25) << "spd-kfac " << spd_kfac << " s, auto " << chosen << " s";
}

INSTANTIATE_TEST_SUITE_P(Models, PaperTable, ::testing::ValuesIn(kPaperTable),
                         [](const auto& instance) {
                           std::string name = instance.param.model;
                           std::erase(name, '-');  // not allowed in the name of a test
                           return name;
                         });

TEST(PaperTableMean, ErrorIsWithinFivePercent) {
  double sum = 0;
  int count = 0;
  for (const PaperRow& row : kPaperTable) {
    for (const Comparison& entry : compare(row)) {
      sum += entry.error();
      ++count;
    }
  }
  EXPECT_LE(sum / count, 0.05);
}

}  // namespace
}  // namespace spdkfac
