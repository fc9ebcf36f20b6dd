// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/report/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spdkfac/report/record.h"

namespace spdkfac {
namespace {

using testing::HasSubstr;
using testing::Not;

IterationResult simulated(double iteration) {
  IterationResult times;
  times.iteration = Seconds(iteration);
  times.breakdown[Category::kForwardBackward] = Seconds(iteration);
  return times;
}

IterationResult measured(const std::vector<double>& samples, double median) {
  IterationResult times = simulated(median);
  times.samples = samples;
  return times;
}

report::Run run_of(const std::string& algorithm, const std::string& label) {
  report::Run run;
  run.model = "tiny";
  run.world = 4;
  run.algorithm = algorithm;
  run.label = label;
  return run;
}

TEST(RunJson, HasWhatThereIs) {
  spdkfac::report::Run run = run_of("spd-kfac", "SPD-KFAC");
  run.forecast = simulated(0.5);
  run.forecast->inverse_load = {Seconds(0.1), Seconds(0.2)};
  run.owners = {{.layer = 3, .side = FactorSide::kG, .dim = 64, .owner = 1},
                {.layer = 4, .side = FactorSide::kA, .dim = 8, .owner = std::nullopt}};
  const Json json = report::runs_json(std::span(&run, 1)).at(0);
  EXPECT_TRUE(json.at("paper").is_null());
  EXPECT_TRUE(json.at("measured").is_null());
  EXPECT_TRUE(json.at("replay").is_null());
  EXPECT_EQ(json.at("forecast").at("iteration"), 0.5);
  EXPECT_EQ(json.at("forecast").at("breakdown").at("ff_bp"), 0.5);
  EXPECT_EQ(json.at("forecast").at("inverse_loads"), Json({0.1, 0.2}));
  EXPECT_EQ(json.at("owners").at(0),
            Json({{"layer", 3}, {"side", "g"}, {"dim", 64}, {"owner", 1}}));
  EXPECT_TRUE(json.at("owners").at(1).at("owner").is_null());
}

TEST(RunJson, OfMeasuredTimesHasSamplesAndTheirInterval) {
  spdkfac::report::Run run = run_of("d-kfac", "D-KFAC");
  run.paper = Seconds(0.8525);
  run.measured = measured({3, 1, 2}, 2);
  const Json json = report::runs_json(std::span(&run, 1)).at(0);
  EXPECT_EQ(json.at("paper"), 0.8525);
  EXPECT_EQ(json.at("measured").at("samples"), Json({3, 1, 2}));
  EXPECT_EQ(json.at("measured").at("median"), 2);
  EXPECT_EQ(json.at("measured").at("low"), 1);
  EXPECT_EQ(json.at("measured").at("high"), 3);
  EXPECT_FALSE(json.contains("owners"));
}

// D-KFAC takes 2 s, SPD-KFAC 1 s in every step, MPD-KFAC now more and now less than D-KFAC.
std::vector<report::Run> three() {
  std::vector<report::Run> runs = {run_of("d-kfac", "D-KFAC"), run_of("mpd-kfac", "MPD-KFAC"),
                                   run_of("spd-kfac", "SPD-KFAC")};
  runs[0].measured = measured({2, 2, 2, 2, 2, 2}, 2);
  runs[1].measured = measured({1.9, 2.1, 1.9, 2.1, 1.9, 2.1}, 2);
  runs[2].measured = measured({1, 1, 1, 1, 1, 1}, 1);
  runs[2].replay = simulated(1.1);
  runs[2].forecast = simulated(0.8);
  return runs;
}

TEST(RunJson, NamesTheRunsThatSamplesCannotTellFromIt) {
  const Json json = report::runs_json(three());
  EXPECT_EQ(json.at(0).at("measured").at("alike"), Json({"MPD-KFAC"}));
  EXPECT_EQ(json.at(1).at("measured").at("alike"), Json({"D-KFAC"}));
  EXPECT_EQ(json.at(2).at("measured").at("alike"), Json::array());
}

TEST(TracesJson, HoldsTheFirstRanksOfWhatThereIs) {
  spdkfac::report::Run run = run_of("d-kfac", "D-KFAC");
  run.forecast = simulated(1);
  run.forecast->trace = Trace(10);
  const auto name = run.forecast->trace.intern("forward");
  for (int rank = 0; rank < 10; ++rank) {
    run.forecast->trace.add(
        {rank, name, Lane::kCompute, Category::kForwardBackward, Seconds(0), Seconds(1)});
  }
  const Json json = report::traces_json(run);
  EXPECT_EQ(json.at("label"), "D-KFAC");
  EXPECT_EQ(json.at("forecast").size(), 8U);
  EXPECT_EQ(json.at("replay"), Json::array());
  EXPECT_EQ(json.at("measured"), Json::array());
}

TEST(RunsText, SaysNoDifferenceWhereTheSamplesCannotTell) {
  const std::string text = report::runs_text(report::RunTable::kIteration, three());
  EXPECT_THAT(text, HasSubstr("= 1.00"));  // MPD-KFAC against D-KFAC
  EXPECT_THAT(text, HasSubstr(" 2.00"));   // SPD-KFAC against both
  EXPECT_THAT(text, Not(HasSubstr("= 2.00")));
  EXPECT_THAT(text, HasSubstr("+10.0"));
  EXPECT_THAT(text, HasSubstr("-20.0"));
  EXPECT_THAT(text, HasSubstr("replay 10.0 % (at most 10.0 %); forecast 20.0 % (at most 20.0 %)"));
}

TEST(RunsText, OfEachExperimentShowsItsParts) {
  const std::vector<spdkfac::report::Run> runs = three();
  EXPECT_THAT(report::runs_text(report::RunTable::kBreakdown, runs), HasSubstr("Precondition"));
  EXPECT_THAT(report::runs_text(report::RunTable::kPipelining, runs), HasSubstr("FactorComm"));
  EXPECT_THAT(report::runs_text(report::RunTable::kPipelining, runs),
              Not(HasSubstr("InverseComp")));
  EXPECT_THAT(report::runs_text(report::RunTable::kPlacement, runs), HasSubstr("InverseComm"));
  EXPECT_THAT(report::runs_text(report::RunTable::kAblation, runs), HasSubstr("speed-up"));
  EXPECT_THAT(report::runs_text(report::RunTable::kScaling, runs),
              HasSubstr("1000.0/1100.0/800.0"));
  EXPECT_EQ(report::runs_text(report::RunTable::kIteration, {}), "no runs\n");
}

TEST(Record, BeginsWithWhoMadeIt) {
  report::RecordHead head;
  head.experiment = "scaling";
  head.mode = report::RecordMode::kEmulated;
  head.note = "pretended";
  const Json record = to_json(head);
  EXPECT_EQ(record.at("format"), "spdkfac.record/1");
  EXPECT_EQ(record.at("experiment"), "scaling");
  EXPECT_EQ(record.at("mode"), "emulated");
  EXPECT_EQ(record.at("note"), "pretended");
  EXPECT_THAT(record.at("made").at("time").get<std::string>(),
              testing::MatchesRegex("20..-..-..T..:..:..Z"));
  for (const char* field : {"version", "commit", "host"}) {
    EXPECT_FALSE(record.at("made").at(field).get<std::string>().empty()) << field;
  }
}

}  // namespace
}  // namespace spdkfac
