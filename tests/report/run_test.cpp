// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/report/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spdkfac/report/record.h"

namespace spdkfac {
namespace {

using testing::HasSubstr;
using testing::Not;

RunTimes simulated(double iteration) {
  RunTimes times;
  times.iteration = Seconds(iteration);
  times.breakdown[Category::kForwardBackward] = Seconds(iteration);
  return times;
}

RunTimes measured(const std::vector<double>& samples, double median) {
  RunTimes times = simulated(median);
  times.samples = samples;
  return times;
}

Run run_of(const std::string& algorithm, const std::string& label) {
  Run run;
  run.model = "tiny";
  run.world = 4;
  run.algorithm = algorithm;
  run.label = label;
  return run;
}

TEST(HiddenShare, IsWhatTheBreakdownDoesNotShow) {
  RunTimes times = simulated(1);
  EXPECT_FALSE(hidden_share(times));
  times.factor_messages = Seconds(0.2);
  times.breakdown[Category::kFactorComm] = Seconds(0.05);
  EXPECT_DOUBLE_EQ(hidden_share(times).value(), 0.75);
  // A wait for the peers can be longer than the message.
  times.breakdown[Category::kFactorComm] = Seconds(0.3);
  EXPECT_EQ(hidden_share(times).value(), 0);
}

TEST(FactorMessages, AreThoseOfTheChannelOfTheFirstRank) {
  Trace trace(2);
  const auto name = trace.intern("x");
  const auto add = [&](int rank, Lane lane, Category category, double start, double duration) {
    trace.add({rank, name, lane, category, Seconds(start), Seconds(duration)});
  };
  add(0, Lane::kChannel, Category::kFactorComm, 0, 0.25);
  add(0, Lane::kChannel, Category::kFactorComm, 1, 0.5);
  add(0, Lane::kChannel, Category::kGradientComm, 2, 1);
  add(0, Lane::kCompute, Category::kFactorComp, 0, 1);
  add(1, Lane::kChannel, Category::kFactorComm, 0, 1);
  EXPECT_EQ(factor_messages(trace).value(), 0.75);
}

TEST(RunJson, HasWhatThereIs) {
  spdkfac::Run run = run_of("spd-kfac", "SPD-KFAC");
  run.predicted = simulated(0.5);
  run.predicted->inverse_loads = {Seconds(0.1), Seconds(0.2)};
  run.owners = {{.layer = 3, .side = FactorSide::kG, .dim = 64, .owner = 1},
                {.layer = 4, .side = FactorSide::kA, .dim = 8, .owner = std::nullopt}};
  const Json json = to_json(run);
  EXPECT_TRUE(json.at("paper").is_null());
  EXPECT_TRUE(json.at("measured").is_null());
  EXPECT_EQ(json.at("predicted").at("iteration"), 0.5);
  EXPECT_EQ(json.at("predicted").at("breakdown").at("ff_bp"), 0.5);
  EXPECT_EQ(json.at("predicted").at("inverse_loads"), Json({0.1, 0.2}));
  EXPECT_EQ(json.at("owners").at(0),
            Json({{"layer", 3}, {"side", "g"}, {"dim", 64}, {"owner", 1}}));
  EXPECT_TRUE(json.at("owners").at(1).at("owner").is_null());
}

TEST(RunJson, OfMeasuredTimesHasSamplesAndTheirInterval) {
  spdkfac::Run run = run_of("d-kfac", "D-KFAC");
  run.paper = Seconds(0.8525);
  run.measured = measured({3, 1, 2}, 2);
  const Json json = to_json(run);
  EXPECT_EQ(json.at("paper"), 0.8525);
  EXPECT_EQ(json.at("measured").at("samples"), Json({3, 1, 2}));
  EXPECT_EQ(json.at("measured").at("median"), 2);
  EXPECT_EQ(json.at("measured").at("low"), 1);
  EXPECT_EQ(json.at("measured").at("high"), 3);
  EXPECT_FALSE(json.contains("owners"));
}

// D-KFAC takes 2 s, SPD-KFAC 1 s in every step, MPD-KFAC now more and now less than D-KFAC.
std::vector<Run> three() {
  std::vector<Run> runs = {run_of("d-kfac", "D-KFAC"), run_of("mpd-kfac", "MPD-KFAC"),
                           run_of("spd-kfac", "SPD-KFAC")};
  runs[0].measured = measured({2, 2, 2, 2, 2, 2}, 2);
  runs[1].measured = measured({1.9, 2.1, 1.9, 2.1, 1.9, 2.1}, 2);
  runs[2].measured = measured({1, 1, 1, 1, 1, 1}, 1);
  runs[2].predicted = simulated(1.1);
  return runs;
}

TEST(RunsText, SaysNoDifferenceWhereTheSamplesCannotTell) {
  const std::string text = runs_text("iteration", three());
  EXPECT_THAT(text, HasSubstr("= 1.00"));  // MPD-KFAC against D-KFAC
  EXPECT_THAT(text, HasSubstr(" 2.00"));   // SPD-KFAC against both
  EXPECT_THAT(text, Not(HasSubstr("= 2.00")));
  EXPECT_THAT(text, HasSubstr("+10.0"));
  EXPECT_THAT(text, HasSubstr("10.0 % on average, 10.0 % at most"));
}

TEST(RunsText, OfEachExperimentShowsItsParts) {
  const std::vector<spdkfac::Run> runs = three();
  EXPECT_THAT(runs_text("breakdown", runs), HasSubstr("Precondition"));
  EXPECT_THAT(runs_text("pipelining", runs), HasSubstr("FactorComm"));
  EXPECT_THAT(runs_text("pipelining", runs), Not(HasSubstr("InverseComp")));
  EXPECT_THAT(runs_text("placement", runs), HasSubstr("InverseComm"));
  EXPECT_THAT(runs_text("ablation", runs), HasSubstr("times as fast"));
  EXPECT_THAT(runs_text("scaling", runs), HasSubstr("1000.0/1100.0"));
  EXPECT_EQ(runs_text("iteration", {}), "nothing was run\n");
}

TEST(Record, BeginsWithWhoMadeIt) {
  RecordHead head;
  head.experiment = "scaling";
  head.mode = RecordMode::kEmulated;
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
