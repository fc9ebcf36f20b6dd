// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/signature.h"

#include <algorithm>

#include <fmt/format.h>

namespace spdkfac::comm {
namespace {

const char* type_name(std::int32_t type) {
  switch (static_cast<at::ScalarType>(type)) {
    case at::kFloat:
      return "float";
    case at::kDouble:
      return "double";
    case at::kLong:
      return "int64";
    default:
      return "uint8";
  }
}

}  // namespace

std::string place_of(const Request& request, int rank, int size) {
  return fmt::format("{} '{}' of {} elements on rank {} of {}", operation_name(request.operation),
                     request.what, request.tensor.defined() ? request.tensor.numel() : 0, rank,
                     size);
}

Signature::Signature(const Request& request) : operation(request.operation), root(request.root) {
  if (request.tensor.defined()) {
    type = static_cast<std::int32_t>(request.tensor.scalar_type());
    elements = request.tensor.numel();
  }
  const std::size_t length = std::min(request.what.size(), what.size() - 1);
  std::copy_n(request.what.data(), length, what.data());
}

std::string Signature::text() const {
  const bool rooted = operation == Operation::kReduce || operation == Operation::kBroadcast;
  if (operation == Operation::kBarrier) return fmt::format("barrier '{}'", what.data());
  return fmt::format("{} '{}' of {} {} elements{}", operation_name(operation), what.data(),
                     elements, type_name(type), rooted ? fmt::format(" with root {}", root) : "");
}

std::string different_calls(const std::string& backend, int size, const RankCall& one,
                            const RankCall& other) {
  return fmt::format(
      "{}: rank {} of {} called {}, but rank {} called {}; give all ranks the same options, data "
      "and code",
      backend, one.rank, size, one.signature.text(), other.rank, other.signature.text());
}

}  // namespace spdkfac::comm
