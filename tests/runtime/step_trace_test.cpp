// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/step_trace.h"

#include <thread>

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "runtime/events_fixture.h"
#include "runtime/kfac_fixture.h"
#include "spdkfac/runtime/step_meter.h"
#include "spdkfac/runtime/step_recorder.h"

namespace spdkfac {
namespace {

using namespace support;

TEST(StepTrace, HoldsEveryPartOfAStepWithoutOverlap) {
  TinyNet model;
  Preconditioner kfac(*model, {.trace = true});
  EXPECT_TRUE(StepMeter(kfac).trace().events().empty());
  for (int step = 0; step < 3; ++step) {
    model->zero_grad();
    loss_of(model, random_batch(4)).backward();
    kfac.step(0.1);
  }
  const Trace trace = StepMeter(kfac).trace();
  std::map<std::string, int> seen;
  Seconds end(0);
  for (const TraceEvent& event : trace.events()) {
    ++seen[trace.names()[event.name]];
    // Clocks and device events round: a microsecond is nothing here.
    EXPECT_GE(event.start + Seconds(1e-6), end);
    end = event.end();
  }
  for (const char* layer : {"conv", "hidden", "out"}) {
    for (const char* what : {"A ", "G "}) {
      EXPECT_EQ(seen[std::string(what) + layer], 1) << what << layer;
    }
    // On a GPU all layers go through these together, and have one span each for that.
    for (const char* what : {"average A ", "average G ", "precondition "}) {
      EXPECT_EQ(seen[std::string(what) + layer], on_cuda() ? 0 : 1) << what << layer;
    }
    EXPECT_EQ(seen[std::string("inverse ") + layer], on_cuda() ? 0 : 2) << layer;
  }
  EXPECT_EQ(seen["average"], on_cuda() ? 1 : 0);
  EXPECT_EQ(seen["inverses"], on_cuda() ? 1 : 0);
  EXPECT_EQ(seen["precondition"], on_cuda() ? 1 : 0);
  EXPECT_GE(seen["forward, backward, update"], 1);
}

void wait_20ms() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

TEST(StepTrace, ACpuSpanLastsAsLongAsItsWork) {
  runtime::StepRecorder recorder;
  recorder.start(at::kCPU);
  {
    const runtime::StepSpan span(recorder, runtime::StepPart::kInverse, at::kCPU, "sleep");
    wait_20ms();
  }
  const Trace result = runtime::trace_of(*recorder.finish(at::kCPU));
  Seconds slept(0);
  for (const TraceEvent& event : result.events()) {
    if (event.category == Category::kInverseComp) slept += event.duration;
  }
  EXPECT_GE(slept, Seconds(0.020));
  EXPECT_LE(slept, result.iteration());
}

TEST(StepTrace, WhatLeadsToAMarkBehindThePassesCountsAsIt) {
  runtime::StepRecorder recorder;
  recorder.start(at::kCPU);
  wait_20ms();
  recorder.passes_end(at::kCPU);
  wait_20ms();
  {
    const runtime::StepSpan span(recorder, runtime::StepPart::kInverse, at::kCPU, "inverse");
    wait_20ms();
  }
  CategoryTimes times;
  const Trace result = runtime::trace_of(*recorder.finish(at::kCPU));
  for (const TraceEvent& event : result.events()) times[event.category] += event.duration;
  EXPECT_GE(times[Category::kForwardBackward], Seconds(0.020));
  EXPECT_GE(times[Category::kInverseComp], Seconds(0.040));
  EXPECT_EQ(times[Category::kFactorComp], Seconds(0));
  EXPECT_NEAR(times.total().value(), result.iteration().value(), 1e-9);
}

// Says when it was on its way, and counts how often it is asked.
class TimedWork final : public Work::State {
 public:
  explicit TimedWork(OperationSpan span) : span_(span) {}
  void wait() override {}
  bool done() override { return true; }
  std::optional<OperationSpan> span() override {
    ++asked;
    return span_;
  }
  int asked = 0;

 private:
  OperationSpan span_;
};

TEST(StepTrace, VisitsAndWaitsAreNoPartsOfIt) {
  // Passes to 4, of which 1 to 2 is a factor within a visit; a wait from 4 to 6; an inverse to 7.
  runtime::StepEvents step;
  step.passes_end = at_second(4);
  step.end = at_second(7);
  step.parts.push_back(step_event(runtime::StepPart::kVisit, {}, 0.5, 2.5, "visit"));
  step.parts.push_back(step_event(runtime::StepPart::kFactor, {}, 1, 2, "A conv"));
  step.parts.push_back(step_event(runtime::StepPart::kWait, {}, 4, 6, "wait"));
  step.parts.push_back(step_event(runtime::StepPart::kInverse, {}, 6, 7, "inverse conv"));
  CategoryTimes times;
  const Trace trace = runtime::trace_of(step);
  for (const TraceEvent& one : trace.events()) times[one.category] += one.duration;
  EXPECT_NEAR(times[Category::kForwardBackward].value(), 3, 1e-9);
  EXPECT_NEAR(times[Category::kFactorComp].value(), 1, 1e-9);
  EXPECT_NEAR(times[Category::kInverseComp].value(), 1, 1e-9);
  EXPECT_NEAR(trace.iteration().value(), 7, 1e-9);
}

TEST(StepTrace, MessagesAreAskedForTheirTimesOnlyByATrace) {
  const auto work =
      std::make_shared<TimedWork>(OperationSpan{at_second(2).time, at_second(5).time});
  runtime::StepRecorder recorder;
  recorder.add({Category::kFactorComm, "unobserved", 10, Work(work)});
  recorder.start(at::kCPU);
  recorder.add({Category::kFactorComm, "all_reduce factor_a 0..1", 10, Work(work)});
  recorder.finish(at::kCPU);
  EXPECT_EQ(work->asked, 0);

  runtime::StepEvents step;
  step.end = at_second(6);
  step.messages.push_back({Category::kFactorComm, "all_reduce factor_a 0..1", 10, Work(work)});
  const Trace trace = runtime::trace_of(step);
  const TraceEvent& message = trace.events().back();
  EXPECT_EQ(message.lane, Lane::kChannel);
  EXPECT_EQ(message.elements, 10);
  EXPECT_NEAR(message.start.value(), 2, 1e-9);
  EXPECT_NEAR(message.duration.value(), 3, 1e-9);
  EXPECT_EQ(work->asked, 1);
}

TEST(StepRecorder, SwitchedOffItRecordsNothing) {
  runtime::StepRecorder recorder;
  { const runtime::StepSpan span(recorder, runtime::StepPart::kFactor, at::kCPU, "A", "layer"); }
  EXPECT_FALSE(recorder.on());
  EXPECT_EQ(recorder.finish(at::kCPU), nullptr);
}

TEST(StepRecorder, KeepsPartsInTheOrderOfTheirBegin) {
  runtime::StepRecorder recorder;
  recorder.start(at::kCPU);
  {
    const runtime::StepSpan outer(recorder, runtime::StepPart::kVisit, at::kCPU, "visit", "conv");
    const runtime::StepSpan inner(recorder, runtime::StepPart::kFactor, at::kCPU, "A", "conv",
                                  runtime::FactorId{3, FactorSide::kA});
    wait_20ms();
  }
  const auto step = recorder.finish(at::kCPU);
  ASSERT_EQ(step->parts.size(), 2U);
  EXPECT_EQ(step->parts[0].name, "visit conv");
  EXPECT_EQ(step->parts[1].name, "A conv");
  ASSERT_EQ(step->parts[1].shares.size(), 1U);
  EXPECT_EQ(step->parts[1].shares[0].factor.layer, 3U);
  for (const runtime::StepEvent& one : step->parts) {
    EXPECT_GE(runtime::TimeMark::between(one.begin, one.end), Seconds(0.020)) << one.name;
  }
}

}  // namespace
}  // namespace spdkfac
