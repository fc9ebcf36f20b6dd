// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/data/batches.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "spdkfac/base/check.h"
#include "spdkfac/data/augment.h"
#include "spdkfac/data/shuffle.h"

namespace spdkfac::data {
namespace {

constexpr double kByteRange = 255;

at::Tensor per_channel(const std::vector<double>& values, double scale, at::Device device) {
  const auto channels = static_cast<std::int64_t>(values.size());
  return (at::tensor(values, at::kDouble) * scale)
      .to(at::kFloat)
      .view({1, channels, 1, 1})
      .to(device);
}

}  // namespace

Batches::Batches(Dataset data, const BatchOptions& options)
    : data_(std::move(data)), options_(options) {
  SPDKFAC_CHECK(
      options.batch >= 1 && options.world >= 1 && options.rank >= 0 && options.rank < options.world,
      fmt::format("batch {}, rank {} of {}", options.batch, options.rank, options.world));
  const std::int64_t together = options.batch * options.world;
  const std::int64_t left = data_.size - options.first;
  SPDKFAC_CHECK(left >= 0 && options.first >= 0, fmt::format("{} examples taken", options.first));
  size_ = data_.split == Split::kTrain ? left / together : (left + together - 1) / together;
  if (options.shuffle) order_ = permutation(data_.size, options.seed, options.epoch);
  if (!data_.mean.empty()) {
    const double scale = data_.images.scalar_type() == at::kByte ? kByteRange : 1;
    mean_ = per_channel(data_.mean, scale, options.device);
    deviation_ = per_channel(data_.deviation, scale, options.device);
  }
}

Batches::Range Batches::range(std::int64_t k) const {
  SPDKFAC_CHECK(k >= 0 && k < size_, fmt::format("batch {} of {}", k, size_));
  const std::int64_t together = options_.batch * options_.world;
  const std::int64_t begin = options_.first + k * together;
  const std::int64_t count = std::min(together, data_.size - begin);
  return {begin + count * options_.rank / options_.world,
          begin + count * (options_.rank + 1) / options_.world};
}

std::int64_t Batches::examples() const {
  if (size_ == 0) return 0;
  const Range last = range(size_ - 1);
  return (size_ - 1) * options_.batch + last.end - last.begin;
}

std::vector<std::int64_t> Batches::indices(std::int64_t k) const {
  const auto [begin, end] = range(k);
  if (!order_.empty()) return {order_.begin() + begin, order_.begin() + end};
  std::vector<std::int64_t> result(static_cast<std::size_t>(end - begin));
  std::iota(result.begin(), result.end(), begin);
  return result;
}

Batch Batches::at(std::int64_t k) const {
  const std::vector<std::int64_t> which = indices(k);
  Batch batch = gather(data_, which);
  if (options_.augment && !which.empty()) {
    batch.images = random_crop_and_flip(batch.images, which, options_.seed, options_.epoch);
  }
  batch.images = batch.images.to(options_.device).to(at::kFloat);
  batch.labels = batch.labels.to(options_.device);
  if (mean_.defined()) batch.images.sub_(mean_).div_(deviation_);
  return batch;
}

}  // namespace spdkfac::data
