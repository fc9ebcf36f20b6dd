// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/calibrate/collectives.h"

#include <algorithm>
#include <memory>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "spdkfac/base/check.h"

namespace spdkfac::calibrate {
namespace {

// With these a straight line shows whether it is one.
constexpr std::size_t kFewestSizes = 3;
// The larger of the two sizes tried beforehand: a sixteenth of the largest, within these.
constexpr std::int64_t kSmallestTrial = std::int64_t{64} * 1024;
constexpr std::int64_t kLargestTrial = std::int64_t{1024} * 1024;

// Memory for the largest size; smaller ones use a part of it. Written, not just asked for:
// untouched pages would all be the same one.
at::Tensor make_buffer(std::int64_t elements, c10::Device device) {
  return at::empty({elements}, at::TensorOptions().dtype(at::kFloat).device(device)).fill_(0);
}

Task make_task(Communicator& communicator, const at::Tensor& buffer, Operation operation,
               std::int64_t size) {
  const int ranks = communicator.size();
  const std::string name = fmt::format("{} of {} elements", operation_name(operation), size);
  const at::Tensor message = buffer.narrow(0, 0, size);
  // Every rank counts alike, because all run the same samples.
  const auto turn = std::make_shared<int>(0);
  switch (operation) {
    case Operation::kAllReduce:
      return {name, [&communicator, message, name] {
                communicator.all_reduce_async(message, name).wait();
              }};
    case Operation::kReduce:
      return {name, [&communicator, message, name, turn, ranks] {
                communicator.reduce_async(message, (*turn)++ % ranks, name).wait();
              }};
    case Operation::kBroadcast:
      return {name, [&communicator, message, name, turn, ranks] {
                communicator.broadcast_async(message, (*turn)++ % ranks, name).wait();
              }};
    case Operation::kAllGather:
    case Operation::kBarrier:
      break;
  }
  SPDKFAC_CHECK(false, "no plan sends this collective");
  return {};
}

// For each size all collectives.
std::vector<Task> make_tasks(Communicator& communicator, const at::Tensor& buffer,
                             const std::vector<std::int64_t>& sizes) {
  std::vector<Task> tasks;
  for (const std::int64_t size : sizes) {
    for (const Operation operation : kCollectives) {
      tasks.push_back(make_task(communicator, buffer, operation, size));
    }
  }
  return tasks;
}

// Seconds of all collectives of one size, by a line through two measured ones.
struct Line {
  double size = 0;
  double at_size = 0;
  double slope = 0;
  double operator()(std::int64_t elements) const {
    return std::max(at_size + slope * (static_cast<double>(elements) - size), 0.0);
  }
};

Line try_two_sizes(const Bench& bench, const std::vector<std::int64_t>& sizes) {
  const std::int64_t first = sizes.front();
  const std::int64_t second = std::clamp(sizes.back() / 16, std::min(kSmallestTrial, sizes.back()),
                                         std::min(kLargestTrial, sizes.back()));
  const at::Tensor buffer = make_buffer(std::max(first, second), bench.device);
  const auto times = measure(bench, make_tasks(bench.communicator, buffer, {first, second}), 1);
  double at_first = 0;
  double at_second = 0;
  for (std::size_t i = 0; i < kCollectives.size(); ++i) {
    at_first += times[i].value();
    at_second += times[kCollectives.size() + i].value();
  }
  const double distance = static_cast<double>(second - first);
  const double slope = distance > 0 ? std::max(0.0, (at_second - at_first) / distance) : 0;
  return {.size = static_cast<double>(first), .at_size = at_first, .slope = slope};
}

}  // namespace

CollectiveStage::CollectiveStage(const Bench& bench, std::vector<std::int64_t> sizes,
                                 int repetitions, std::optional<Seconds> budget)
    : bench_(bench), sizes_(std::move(sizes)), repetitions_(repetitions) {
  SPDKFAC_CHECK(!sizes_.empty() && repetitions_ >= 1, "nothing to measure");
  const Line seconds = try_two_sizes(bench, sizes_);
  while (true) {
    double round = 0;
    // Before each collective the ranks meet, which takes about as long as the smallest of them.
    for (const std::int64_t size : sizes_) round += seconds(size) + seconds(sizes_.front());
    estimate_ = Seconds(round * (repetitions_ + 1));
    if (!budget || estimate_ <= *budget || sizes_.size() <= kFewestSizes) break;
    sizes_.pop_back();
  }
}

std::size_t CollectiveStage::samples() const {
  return sizes_.size() * kCollectives.size() * static_cast<std::size_t>(repetitions_ + 1);
}

std::vector<CollectiveTimes> CollectiveStage::measure() const {
  const at::Tensor buffer = make_buffer(sizes_.back(), bench_.device);
  const auto times =
      calibrate::measure(bench_, make_tasks(bench_.communicator, buffer, sizes_), repetitions_);
  std::vector<CollectiveTimes> result;
  for (std::size_t i = 0; i < kCollectives.size(); ++i) {
    CollectiveTimes& collective = result.emplace_back();
    collective.operation = kCollectives[i];
    for (std::size_t k = 0; k < sizes_.size(); ++k) {
      collective.times.push_back(
          {static_cast<double>(sizes_[k]), times[k * kCollectives.size() + i]});
    }
  }
  return result;
}

}  // namespace spdkfac::calibrate
