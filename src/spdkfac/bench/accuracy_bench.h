// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spdkfac/base/json.h"
#include "spdkfac/bench/progress.h"
#include "spdkfac/data/fashion_mnist.h"
#include "spdkfac/kfac/precision.h"

namespace spdkfac::bench {

// How far are a step's preconditioned gradients from those that double precision gives with the
// same factors, on a network that was trained a little?
struct AccuracyOptions {
  std::string model = "resnet20";
  std::string data_dir = data::kFashionMnistFolder;
  std::string device = "cpu";
  std::int64_t batch = 128;
  std::int64_t steps = 200;
  double learning_rate = 0.003;
};

struct LayerError {
  std::string name;
  double difference = 0;  // squared
  double size = 0;        // squared

  double relative() const;
};

struct PrecisionErrors {
  Precision precision = Precision::kFp32;
  std::vector<LayerError> layers;

  double relative() const;  // of all layers together
  const LayerError& worst() const;
};

// One entry for each precision: fp32, tf32, bf16.
std::vector<PrecisionErrors> bench_accuracy(const AccuracyOptions& options,
                                            const ProgressListener& progress = {});

std::string to_text(const AccuracyOptions& options, const std::vector<PrecisionErrors>& result);
// A record of experiment `accuracy` (docs/records.md).
Json to_json(const AccuracyOptions& options, const std::vector<PrecisionErrors>& result);

}  // namespace spdkfac::bench
