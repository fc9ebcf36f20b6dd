// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/threads/collective.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include <ATen/ATen.h>

#include "spdkfac/base/check.h"

namespace spdkfac::comm {
namespace {

// Elements that are summed at a time: few enough to stay in the first-level cache.
constexpr std::int64_t kBlock = 1024;

// Leaves the sum in the tensors of all ranks, or of `only` that rank. Plain loops instead of
// torch's operators, which would start a pool of threads for the thread that calls them.
template <class Number>
void sum(std::span<const Request> requests, std::optional<int> only) {
  const std::int64_t elements = requests.front().tensor.numel();
  std::array<Number, kBlock> total;
  for (std::int64_t first = 0; first < elements; first += kBlock) {
    const std::int64_t count = std::min(kBlock, elements - first);
    std::copy_n(requests.front().tensor.const_data_ptr<Number>() + first, count, total.begin());
    for (const Request& request : requests.subspan(1)) {
      const Number* const numbers = request.tensor.const_data_ptr<Number>() + first;
      for (std::int64_t i = 0; i < count; ++i) {
        Number& element = total[static_cast<std::size_t>(i)];
        element = static_cast<Number>(element + numbers[i]);
      }
    }
    for (std::size_t rank = 0; rank < requests.size(); ++rank) {
      if (only && static_cast<std::size_t>(*only) != rank) continue;
      std::copy_n(total.begin(), count, requests[rank].tensor.mutable_data_ptr<Number>() + first);
    }
  }
}

void sum_numbers(std::span<const Request> requests, std::optional<int> only) {
  switch (requests.front().tensor.scalar_type()) {
    case at::kFloat:
      return sum<float>(requests, only);
    case at::kDouble:
      return sum<double>(requests, only);
    case at::kLong:
      return sum<std::int64_t>(requests, only);
    case at::kByte:
      return sum<std::uint8_t>(requests, only);
    default:
      SPDKFAC_CHECK(false, "a tensor of a type that cannot be sent");
  }
}

void broadcast(std::span<const Request> requests) {
  const Request& root = requests[static_cast<std::size_t>(requests.front().root)];
  for (const Request& request : requests) {
    if (&request == &root || request.tensor.numel() == 0) continue;
    std::memmove(request.tensor.mutable_data_ptr(), root.tensor.const_data_ptr(),
                 root.tensor.nbytes());
  }
}

void all_gather(std::span<const Request> requests) {
  const std::size_t bytes = requests.front().tensor.nbytes();
  if (bytes == 0) return;
  for (const Request& to : requests) {
    auto* row = static_cast<std::byte*>(to.output.mutable_data_ptr());
    for (const Request& from : requests) {
      std::memmove(row, from.tensor.const_data_ptr(), bytes);
      row += bytes;
    }
  }
}

}  // namespace

void execute_collective(std::span<const Request> requests) {
  switch (requests.front().operation) {
    case Operation::kAllReduce:
      return sum_numbers(requests, std::nullopt);
    case Operation::kReduce:
      return sum_numbers(requests, requests.front().root);
    case Operation::kBroadcast:
      return broadcast(requests);
    case Operation::kAllGather:
      return all_gather(requests);
    case Operation::kBarrier:
      return;
  }
}

}  // namespace spdkfac::comm
