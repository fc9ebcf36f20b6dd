// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/step_trace.h"

#include <thread>

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "runtime/kfac_fixture.h"

namespace spdkfac {
namespace {

using namespace support;

TEST(StepTrace, HoldsEveryPartOfAStepWithoutOverlap) {
  TinyNet model;
  Preconditioner kfac(*model, {.trace = true});
  EXPECT_TRUE(kfac.trace().events().empty());
  for (int step = 0; step < 3; ++step) {
    model->zero_grad();
    loss_of(model, random_batch(4)).backward();
    kfac.step(0.1);
  }
  const Trace trace = kfac.trace();
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

TEST(StepTrace, ACpuSpanLastsAsLongAsItsWork) {
  StepTrace trace(true);
  trace.next_step(at::kCPU);
  {
    const StepTrace::Span span(trace, Category::kInverseComp, "sleep", "", at::kCPU);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  trace.next_step(at::kCPU);
  const Trace result = trace.trace();
  Seconds slept(0);
  for (const TraceEvent& event : result.events()) {
    if (event.category == Category::kInverseComp) slept += event.duration;
  }
  EXPECT_GE(slept, Seconds(0.020));
  EXPECT_LE(slept, result.iteration());
}

TEST(StepTrace, WhatLeadsToAMarkBehindThePassesCountsAsIt) {
  const auto wait = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  StepTrace trace(true);
  trace.next_step(at::kCPU);
  wait();
  trace.passes_end(at::kCPU);
  wait();
  {
    const StepTrace::Span span(trace, Category::kInverseComp, "inverse", "", at::kCPU);
    wait();
  }
  trace.next_step(at::kCPU);
  CategoryTimes times;
  const Trace result = trace.trace();
  for (const TraceEvent& event : result.events()) times[event.category] += event.duration;
  EXPECT_GE(times[Category::kForwardBackward], Seconds(0.020));
  EXPECT_GE(times[Category::kInverseComp], Seconds(0.040));
  EXPECT_EQ(times[Category::kFactorComp], Seconds(0));
  EXPECT_NEAR(times.total().value(), result.iteration().value(), 1e-9);
}

TEST(StepTrace, SwitchedOffItRecordsNothing) {
  StepTrace trace(false);
  trace.next_step(at::kCPU);
  { const StepTrace::Span span(trace, Category::kFactorComp, "A", "layer", at::kCPU); }
  trace.next_step(at::kCPU);
  EXPECT_TRUE(trace.trace().events().empty());
}

}  // namespace
}  // namespace spdkfac
