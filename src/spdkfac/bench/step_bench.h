// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spdkfac/base/json.h"
#include "spdkfac/bench/bench_model.h"
#include "spdkfac/bench/progress.h"
#include "spdkfac/kfac/product_method.h"
#include "spdkfac/runtime/kfac_options.h"

namespace spdkfac::bench {

struct StepBenchOptions {
  BenchSetting setting;
  Precision precision = Precision::kFp32;  // CUDA: of the model (bf16: by autocast) and of K-FAC
  int steps_per_sample = 1;                // in a row, timed together
  std::string profile;                     // file for the trace of the last step, or empty
  std::int64_t warmup = 3;
  KfacOptions kfac;
};

// Seconds of each measured step, in order.
struct StepSamples {
  std::string name;
  std::vector<double> seconds;
};

struct StepBenchResult {
  // sgd; with graphs also sgd, graphs; capture (the operators are watched, no factor is
  // computed); kfac; kfac with tracing, never as graphs.
  std::vector<StepSamples> variants;
  // Medians of the traced steps by category, in milliseconds.
  std::vector<std::pair<std::string, double>> parts;
  // The library calls alone that the largest parts consist of, in milliseconds: the products of all
  // factors on ready patches, the factorisations and inversions, the preconditioning products.
  std::vector<std::pair<std::string, double>> calls_alone;
  std::int64_t peak_bytes_sgd = 0;  // CUDA only
  std::int64_t peak_bytes_kfac = 0;
  KfacMemory memory;
  std::vector<kfac::MeasuredMethod> methods;
  Trace last;  // of the traced steps
};

// Runs one step of each variant in turn, again and again, so that a slow moment of the machine hits
// all of them.
StepBenchResult bench_step(const StepBenchOptions& options, const ProgressListener& progress = {});

std::string to_text(const StepBenchOptions& options, const StepBenchResult& result);
// A record of experiment `step` (docs/records.md).
Json to_json(const StepBenchOptions& options, const StepBenchResult& result);

}  // namespace spdkfac::bench
