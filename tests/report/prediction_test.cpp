// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/report/prediction.h"

#include <sstream>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spdkfac/report/table.h"
#include "support/config_error.h"

namespace spdkfac {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Prediction prediction(const std::string& algorithm, double iteration, int world = 4) {
  Prediction p;
  p.algorithm = algorithm;
  p.model = "tiny";
  p.cluster = "lab";
  p.batch = 2;
  p.world = world;
  p.result.iteration = p.full_step = Seconds(iteration);
  p.result.breakdown[Category::kForwardBackward] = Seconds(0.75 * iteration);
  p.result.breakdown[Category::kFactorComm] = Seconds(0.25 * iteration);
  p.result.sent_bytes = 3e6;
  p.result.inverse_load = {Seconds(0.015), Seconds(0.02), Seconds(0.01)};
  p.utilisation = {{Seconds(0.5 * iteration), Seconds(0.4 * iteration), Seconds(0.1 * iteration)}};
  return p;
}

TEST(Prediction, JsonHasTheDocumentedFields) {
  const Json json = report::to_json(prediction("spd-kfac", 2));
  EXPECT_EQ(json["format"], "spdkfac.prediction/2");
  EXPECT_EQ(json["algorithm"], "spd-kfac");
  EXPECT_EQ(json["world"], 4);
  EXPECT_EQ(json["iteration_seconds"], 2.0);
  EXPECT_EQ(json["breakdown_seconds"]["ff_bp"], 1.5);
  EXPECT_EQ(json["breakdown_seconds"]["factor_comm"], 0.5);
  EXPECT_EQ(json["breakdown_seconds"].size(), kCategoryCount);
  EXPECT_EQ(json["bytes_per_worker"], 3e6);
  EXPECT_EQ(json["exposed_communication_seconds"], 0.5);
  EXPECT_EQ(json["full_step_seconds"], 2.0);
  EXPECT_EQ(json["full_step_inverse_max_seconds"], 0.02);
  EXPECT_EQ(json["full_step_inverse_min_seconds"], 0.01);
}

TEST(Prediction, JsonRoundTripKeepsWhatItHolds) {
  const Json json = report::to_json(prediction("spd-kfac", 2));
  EXPECT_EQ(report::to_json(report::parse_prediction(json, "file")), json);
  Json wrong = json;
  wrong["breakdown_seconds"]["ff_bp"] = -1;
  EXPECT_THAT(support::config_error([&] { report::parse_prediction(wrong, "file"); }),
              HasSubstr("file: breakdown_seconds.ff_bp"));
}

TEST(Prediction, ComparisonGivesSpeedupsOverTheBaselines) {
  const std::vector<Prediction> list = {prediction("d-kfac", 3), prediction("mpd-kfac", 2),
                                        prediction("spd-kfac", 1.5)};
  // 3 / 1.5 = 2.00 over d-kfac, 2 / 1.5 = 1.33 over mpd-kfac.
  EXPECT_THAT(report::comparison_text(list),
              ::testing::ContainsRegex("spd-kfac +1500.0 +2.00 +1.33 "));
}

TEST(Prediction, ComparisonWithoutABaselineSaysSo) {
  const std::vector<Prediction> list = {prediction("spd-kfac", 1)};
  EXPECT_THAT(report::comparison_text(list), ::testing::ContainsRegex("spd-kfac +1000.0 +- +- "));
}

TEST(Prediction, CsvHasOneLineForEach) {
  const std::vector<Prediction> list = {prediction("d-kfac", 1), prediction("auto", 0.5)};
  const std::string csv = report::comparison_csv(list);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3);
  const std::string zero = "0.000000000,";
  EXPECT_THAT(csv, HasSubstr("\ntiny,2,lab,4,auto,0.500000000,0.375000000," + zero + zero +
                             "0.125000000," + zero + zero + zero +
                             "3000000,0.125000000,0.500000000,0.020000000,0.010000000,1,1\n"));
}

TEST(Prediction, CsvWritesBytesWithoutExponents) {
  std::vector<Prediction> list = {prediction("d-kfac", 1)};
  list[0].result.sent_bytes = 1110434633.0625;
  EXPECT_THAT(report::comparison_csv(list), HasSubstr(",1110434633,"));
}

// An average of a cycle is shorter than the inversions of its full step can be.
TEST(Prediction, AveragesAreToldFromFullSteps) {
  Prediction average = prediction("spd-kfac", 0.001);
  EXPECT_THAT(report::describe(average), Not(HasSubstr("average")));
  EXPECT_THAT(report::comparison_text({{average}}), Not(HasSubstr("verage")));
  average.full_step = Seconds(0.05);
  average.intervals = {10, 100};
  EXPECT_THAT(report::describe(average),
              HasSubstr("spd-kfac: 1.0 ms per iteration on average; a full step takes 50.0 ms\n"));
  EXPECT_THAT(report::describe(average), HasSubstr("20.0 ms of a rank's time in a full step\n"));
  EXPECT_EQ(report::comparison_text({{average}}),
            "tiny, batch 2, on 4 ranks of lab\n"
            "           10/100: averages ─────────────────────────────  full step ──────\n"
            "algorithm   ms  × d-kfac  × mpd-kfac  sent MB  exposed ms    ms  inverse ms\n"
            "─────────  ───  ────────  ──────────  ───────  ──────────  ────  ──────────\n"
            "spd-kfac   1.0         -           -      3.0         0.2  50.0        20.0\n"
            "× is the speed-up over that algorithm. Averages are of a refresh cycle.\n");
}

// 3 / 1.5 = 2.00 over d-kfac in every step, 1 / 0.8 = 1.25 rarely; nothing of the one without.
TEST(Prediction, IntervalsStandSideBySide) {
  std::vector<Prediction> list = {prediction("d-kfac", 3), prediction("spd-kfac", 1.5),
                                  prediction("d-kfac", 1), prediction("auto", 0.8)};
  for (std::size_t i = 2; i < 4; ++i) {
    list[i].intervals = {10, 100};
    list[i].full_step = Seconds(2);
  }
  const std::string text = report::comparison_text(list);
  EXPECT_THAT(text, HasSubstr("1/1: every step is full ─"));
  EXPECT_THAT(text, HasSubstr("10/100: averages ─"));
  EXPECT_THAT(text,
              ::testing::ContainsRegex("\nd-kfac +3000.0 +1.00 .* 20.0 +1000.0 +1.00 +3.0\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("\nspd-kfac +1500.0 +2.00 .* 20.0 +- +- +-\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("\nauto +- +- +- +- +- +800.0 +1.25 +3.0\n"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(report::display_width(line), report::kPageWidth) << line;
  }
}

TEST(Prediction, TheSameAlgorithmTwiceHasTwoLines) {
  const std::string text =
      report::comparison_text(std::vector{prediction("spd-kfac", 1), prediction("spd-kfac", 2)});
  EXPECT_THAT(text, ::testing::ContainsRegex("spd-kfac +1000.0 .*\nspd-kfac +2000.0 "));
}

TEST(Prediction, MethodsForForecastsOnlyHaveATableOfTheirOwn) {
  const std::vector<Prediction> list = {prediction("d-kfac", 3), prediction("muon", 1)};
  EXPECT_THAT(
      report::comparison_text(list),
      ::testing::ContainsRegex("\nd-kfac +3000.0 .*\n\nOther methods, .*\nalgorithm .*\n.*\n"
                               "muon +1000.0 +3.00 "));
}

TEST(Prediction, JsonKeepsTheIntervals) {
  Prediction growing = prediction("spd-kfac", 1);
  growing.intervals = {5, 50, 300};
  const Prediction read = report::parse_prediction(report::to_json(growing), "file");
  EXPECT_EQ(read.intervals, growing.intervals);
  Json old = report::to_json(prediction("spd-kfac", 1));
  old.erase("factor_interval");
  old.erase("inverse_interval");
  EXPECT_EQ(report::parse_prediction(old, "file").intervals, RefreshIntervals());
}

TEST(Prediction, OfSpreadRefreshesHasTheSlowestStep) {
  Prediction spread = prediction("spd-kfac", 0.001);
  spread.full_step = Seconds(0.05);
  spread.intervals = {.factors = 10, .inverses = 100, .spread = true};
  const std::string text = report::describe(spread);
  EXPECT_THAT(text, HasSubstr("1.0 ms per iteration on average; the slowest step takes 50.0 ms\n"));
  EXPECT_THAT(text, HasSubstr("20.0 ms of a rank's time in the slowest step\n"));
  EXPECT_THAT(text, Not(HasSubstr("full step")));
  EXPECT_THAT(report::comparison_text({{spread}}), HasSubstr("  slowest step ─"));
  const Prediction read = report::parse_prediction(report::to_json(spread), "file");
  EXPECT_EQ(read.intervals, spread.intervals);
}

TEST(Prediction, WideTablesHaveMoreColumns) {
  const std::vector<Prediction> list = {prediction("spd-kfac", 1)};
  const std::string narrow = report::comparison_text(list);
  const std::string wide = report::comparison_text(list, /*wide=*/true);
  for (const char* title : {"inverse min ms", "full step ms"}) {
    EXPECT_THAT(narrow, Not(HasSubstr(title)));
    EXPECT_THAT(wide, HasSubstr(title));
  }
}

TEST(Prediction, DescriptionShowsPartsTrafficAndLoads) {
  const std::string text = report::describe(prediction("spd-kfac", 1));
  EXPECT_THAT(text, HasSubstr("tiny, batch 2, on 4 ranks of lab\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("FF&BP +750.0 +75.0 "));
  EXPECT_THAT(text, HasSubstr("sends 3.0 MB"));
  EXPECT_THAT(text, HasSubstr("10.0 to 20.0 ms"));
  // 0.1 of 0.4 busy is hidden.
  EXPECT_THAT(text, HasSubstr("busy 40.0 % of it, 25.0 % of that hidden"));
}

TEST(Prediction, ScalingTableHasAColumnForEachAlgorithm) {
  const std::vector<Prediction> list = {prediction("sgd", 0.1, 1), prediction("auto", 0.5, 1),
                                        prediction("sgd", 0.2, 2), prediction("auto", 1, 2)};
  const std::string text = report::scaling_text(list);
  // Images per second of the best K-FAC: batch 2 on 1 worker in 0.5 s = 4; on 2 in 1 s = 4.
  EXPECT_THAT(text, ::testing::ContainsRegex("1 +100.0 +500.0 +4\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("2 +200.0 +1000.0 +4\n"));
}

TEST(Prediction, NothingToShowIsEmpty) {
  EXPECT_EQ(report::comparison_text({}), "");
  EXPECT_EQ(report::scaling_text({}), "");
}

}  // namespace
}  // namespace spdkfac
