// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/communicator.h"

#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "spdkfac/base/check.h"

namespace spdkfac {
namespace {

bool can_travel(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kLong || type == at::kByte;
}

std::string place(const Request& request) {
  return fmt::format("{} '{}'", operation_name(request.operation), request.what);
}

void check_tensor(const at::Tensor& tensor, const Request& request) {
  SPDKFAC_CHECK(tensor.defined(), fmt::format("{} has no tensor", place(request)));
  SPDKFAC_CHECK(tensor.is_contiguous(),
                fmt::format("{} has a tensor that is not contiguous", place(request)));
  SPDKFAC_CHECK(can_travel(tensor.scalar_type()),
                fmt::format("{} has a tensor of type {}", place(request),
                            c10::toString(tensor.scalar_type())));
}

void check(const Request& request, int size) {
  if (request.operation == Operation::kBarrier) return;
  check_tensor(request.tensor, request);
  SPDKFAC_CHECK(0 <= request.root && request.root < size,
                fmt::format("{} has root {} of {} ranks", place(request), request.root, size));
  if (request.operation != Operation::kAllGather) return;
  const at::Tensor& tensor = request.tensor;
  const at::Tensor& output = request.output;
  check_tensor(output, request);
  SPDKFAC_CHECK(output.scalar_type() == tensor.scalar_type() && output.device() == tensor.device(),
                fmt::format("{} has an output of a different type or device", place(request)));
  SPDKFAC_CHECK(output.sizes() == at::IntArrayRef({size, tensor.numel()}),
                fmt::format("{} of {} elements on {} ranks has an output of {} elements",
                            place(request), tensor.numel(), size, output.numel()));
}

// How often a rank sends the payload, as the mean over the ranks (see Traffic).
double times_sent(Operation operation, int size) {
  const double others = size - 1;
  switch (operation) {
    case Operation::kAllReduce:
      return 2 * others / size;
    case Operation::kReduce:
    case Operation::kBroadcast:
      return others / size;
    case Operation::kAllGather:
      return others;
    case Operation::kBarrier:
      return 0;
  }
  return 0;
}

}  // namespace

const char* operation_name(Operation operation) {
  switch (operation) {
    case Operation::kAllReduce:
      return "all_reduce";
    case Operation::kReduce:
      return "reduce";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kAllGather:
      return "all_gather";
    case Operation::kBarrier:
      return "barrier";
  }
  return "?";
}

Work Communicator::all_reduce_async(const at::Tensor& tensor, std::string what,
                                    std::optional<Load> charged) {
  return check_and_start({.operation = Operation::kAllReduce,
                          .tensor = tensor,
                          .output = {},
                          .root = 0,
                          .what = std::move(what),
                          .charged = charged});
}

Work Communicator::reduce_async(const at::Tensor& tensor, int root, std::string what,
                                std::optional<Load> charged) {
  return check_and_start({.operation = Operation::kReduce,
                          .tensor = tensor,
                          .output = {},
                          .root = root,
                          .what = std::move(what),
                          .charged = charged});
}

Work Communicator::broadcast_async(const at::Tensor& tensor, int root, std::string what,
                                   std::optional<Load> charged) {
  return check_and_start({.operation = Operation::kBroadcast,
                          .tensor = tensor,
                          .output = {},
                          .root = root,
                          .what = std::move(what),
                          .charged = charged});
}

Work Communicator::all_gather_async(const at::Tensor& tensor, const at::Tensor& all,
                                    std::string what) {
  return check_and_start({.operation = Operation::kAllGather,
                          .tensor = tensor,
                          .output = all,
                          .root = 0,
                          .what = std::move(what)});
}

void Communicator::barrier(std::string what) {
  check_and_start({.operation = Operation::kBarrier,
                   .tensor = {},
                   .output = {},
                   .root = 0,
                   .what = std::move(what)})
      .wait();
}

Work Communicator::check_and_start(Request request) {
  check(request, size());
  if (request.operation != Operation::kBarrier) {
    const auto bytes = static_cast<std::int64_t>(request.tensor.nbytes());
    ++traffic_.operations;
    traffic_.payload += Bytes(bytes);
    traffic_.sent += static_cast<double>(bytes) * times_sent(request.operation, size());
  }
  return start(std::move(request));
}

}  // namespace spdkfac
