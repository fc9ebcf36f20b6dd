// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/trace/trace.h"

#include <limits>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/error.h"
#include "spdkfac/base/json.h"
#include "spdkfac/trace/trace_json.h"

namespace spdkfac {
namespace {

using testing::HasSubstr;

std::string perfetto(const Trace& trace) {
  std::ostringstream out;
  trace.write_perfetto(out);
  return out.str();
}

TraceEvent event(int rank, double start, double duration) {
  return {.rank = rank,
          .name = 0,
          .lane = Lane::kCompute,
          .category = Category::kForwardBackward,
          .start = Seconds(start),
          .duration = Seconds(duration)};
}

TEST(Category, HasTheNameUsedInFiles) {
  std::vector<std::string> names;
  for (const Category category : kCategories) names.emplace_back(category_name(category));
  EXPECT_EQ(names, std::vector<std::string>({"ff_bp", "grad_comm", "factor_comp", "factor_comm",
                                             "inverse_comp", "inverse_comm", "precondition"}));
}

TEST(CategoryTimes, AddUpToTheTotal) {
  CategoryTimes times;
  EXPECT_EQ(times.total(), Seconds(0));
  times[Category::kForwardBackward] = Seconds(0.5);
  times[Category::kPrecondition] += Seconds(0.25);
  EXPECT_EQ(times.total(), Seconds(0.75));
}

TEST(Trace, InternsEachNameOnce) {
  Trace trace;
  EXPECT_EQ(trace.intern("a"), 0U);
  EXPECT_EQ(trace.intern("b"), 1U);
  EXPECT_EQ(trace.intern("a"), 0U);
  EXPECT_EQ(trace.names(), std::vector<std::string>({"a", "b"}));
}

TEST(Trace, IterationEndsWithTheLastEventOfAnyRank) {
  Trace trace(2);
  trace.intern("a");
  EXPECT_EQ(trace.iteration(), Seconds(0));
  trace.add(event(1, 1.0, 0.5));
  trace.add(event(0, 0.25, 0.25));
  EXPECT_EQ(trace.iteration(), Seconds(1.5));
}

TEST(Trace, RefusesEventsThatCannotBe) {
  Trace trace(2);
  EXPECT_THROW(trace.add(event(0, 0, 1)), InternalError);  // its name was never interned
  trace.intern("a");
  EXPECT_THROW(trace.add(event(-1, 0, 1)), InternalError);
  EXPECT_THROW(trace.add(event(2, 0, 1)), InternalError);
  EXPECT_THROW(trace.add(event(0, 0, -1e-9)), InternalError);
  EXPECT_THROW(trace.add(event(0, 0, std::numeric_limits<double>::infinity())), InternalError);
  EXPECT_THROW(trace.add(event(0, 0, std::numeric_limits<double>::quiet_NaN())), InternalError);
  EXPECT_THROW(trace.add(event(0, std::numeric_limits<double>::quiet_NaN(), 1)), InternalError);
  EXPECT_TRUE(trace.events().empty());
  EXPECT_NO_THROW(trace.add(event(0, 0, 0)));
}

TEST(TracePerfetto, WritesEventsInMicrosecondsOnePerLine) {
  Trace trace(3);
  const std::uint32_t forward = trace.intern("conv1.forward");
  const std::uint32_t reduce = trace.intern("reduce \"A\"\n\\");
  trace.add({.rank = 2,
             .name = forward,
             .lane = Lane::kCompute,
             .category = Category::kForwardBackward,
             .start = Seconds(0),
             .duration = Seconds(1.5e-3)});
  trace.add({.rank = 0,
             .name = reduce,
             .lane = Lane::kChannel,
             .category = Category::kFactorComm,
             .start = Seconds(1.234567891),
             .duration = Seconds(2e-9)});
  // Rank 1 did nothing and is not listed.
  EXPECT_EQ(perfetto(trace),
            R"({"displayTimeUnit":"ms","traceEvents":[
{"ph":"M","pid":0,"name":"process_name","args":{"name":"rank 0"}},
{"ph":"M","pid":0,"tid":0,"name":"thread_name","args":{"name":"compute"}},
{"ph":"M","pid":0,"tid":1,"name":"thread_name","args":{"name":"channel"}},
{"ph":"M","pid":2,"name":"process_name","args":{"name":"rank 2"}},
{"ph":"M","pid":2,"tid":0,"name":"thread_name","args":{"name":"compute"}},
{"ph":"M","pid":2,"tid":1,"name":"thread_name","args":{"name":"channel"}},
{"ph":"X","pid":2,"tid":0,"ts":0.000,"dur":1500.000,"cat":"ff_bp","name":"conv1.forward"},
{"ph":"X","pid":0,"tid":1,"ts":1234567.891,"dur":0.002,"cat":"factor_comm","name":"reduce \"A\"\n\\"}
]}
)");
}

TEST(TracePerfetto, EmptyTraceIsAValidDocument) {
  EXPECT_EQ(parse_json(perfetto(Trace(4)), "trace").dump(),
            R"({"displayTimeUnit":"ms","traceEvents":[]})");
}

TEST(TracePerfetto, ReadsBackWhatWasAdded) {
  // Enough events that the writer empties its buffer several times.
  constexpr int kEvents = 5000;
  constexpr int kWorld = 4;
  const std::vector<std::string> names = {"plain", "é", "tab\t", std::string("zero\0", 5),
                                          "</script>"};
  Trace trace(kWorld);
  for (const std::string& name : names) trace.intern(name);
  for (int i = 0; i < kEvents; ++i) {
    trace.add({.rank = i % kWorld,
               .name = static_cast<std::uint32_t>(i) % static_cast<std::uint32_t>(names.size()),
               .lane = i % 3 == 0 ? Lane::kChannel : Lane::kCompute,
               .category = kCategories[static_cast<std::size_t>(i) % kCategoryCount],
               .start = Seconds(i * 1e-3),
               .duration = Seconds(0.5e-3)});
  }
  const Json json = parse_json(perfetto(trace), "trace");
  const Json& written = json["traceEvents"];
  constexpr std::size_t kMetadata = 3 * kWorld;
  ASSERT_EQ(written.size(), kMetadata + kEvents);
  for (std::size_t i = 0; i < kEvents; ++i) {
    const TraceEvent& added = trace.events()[i];
    const Json expected = {{"ph", "X"},
                           {"pid", added.rank},
                           {"tid", added.lane == Lane::kChannel ? 1 : 0},
                           {"ts", 1000.0 * static_cast<double>(i)},
                           {"dur", 500.0},
                           {"cat", category_name(added.category)},
                           {"name", names[added.name]}};
    ASSERT_EQ(written[kMetadata + i], expected);
  }
}

TEST(TracePerfetto, ReplacesBytesThatAreNotUtf8) {
  Trace trace;
  trace.intern("a\xFF");
  trace.add(event(0, 0, 1));
  EXPECT_EQ(parse_json(perfetto(trace), "trace")["traceEvents"].back()["name"], "a\uFFFD");
}

TEST(TraceJson, ReadsBackWhatWasAdded) {
  Trace trace(2);
  const auto one = trace.intern("one");
  const auto two = trace.intern("two \"quoted\"");
  trace.add({0, one, Lane::kCompute, Category::kFactorComp, Seconds(0.25), Seconds(0.5)});
  trace.add({1, two, Lane::kChannel, Category::kInverseComm, Seconds(-0.125), Seconds(0)});
  trace.add({1, one, Lane::kChannel, Category::kFactorComm, Seconds(0), Seconds(0.5), 1000});
  const Json json = to_json(trace);
  EXPECT_EQ(json.at(1), Json({1, "channel", "inverse_comm", "two \"quoted\"", -0.125, 0.0}));
  EXPECT_EQ(json.at(2), Json({1, "channel", "factor_comm", "one", 0.0, 0.5, 1000}));
  const Trace back = parse_trace(JsonValue(json, "test"), 2);
  EXPECT_EQ(to_json(back), json);
  EXPECT_EQ(back.iteration(), Seconds(0.75));
}

TEST(TraceJson, RefusesWhatIsNoEvent) {
  const auto error_of = [](const Json& events) -> std::string {
    try {
      parse_trace(JsonValue(events, "file", "events"), 2);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of({{0, "compute", "ff_bp", "x", 0.0}}), HasSubstr("events[0]"));
  EXPECT_THAT(error_of({{2, "compute", "ff_bp", "x", 0.0, 1.0}}), HasSubstr("events[0][0]"));
  EXPECT_THAT(error_of({{0, "disk", "ff_bp", "x", 0.0, 1.0}}), HasSubstr("events[0][1]"));
  EXPECT_THAT(error_of({{0, "compute", "tea", "x", 0.0, 1.0}}), HasSubstr("events[0][2]"));
  EXPECT_THAT(error_of({{0, "compute", "ff_bp", "x", 0.0, -1.0}}), HasSubstr("events[0][5]"));
  EXPECT_THAT(error_of({{0, "channel", "ff_bp", "x", 0.0, 1.0, -1}}), HasSubstr("events[0][6]"));
}

TEST(TraceAppend, ShiftsTheEventsOfAnotherRank) {
  Trace one(1);
  one.add({0, one.intern("a"), Lane::kCompute, Category::kForwardBackward, Seconds(0), Seconds(1)});
  Trace all(3);
  all.intern("something else");
  all.append(one, 2, Seconds(0.5));
  ASSERT_EQ(all.events().size(), 1U);
  EXPECT_EQ(all.events()[0].rank, 2);
  EXPECT_EQ(all.events()[0].start, Seconds(0.5));
  EXPECT_EQ(all.names()[all.events()[0].name], "a");
  EXPECT_EQ(all.iteration(), Seconds(1.5));
}

}  // namespace
}  // namespace spdkfac
