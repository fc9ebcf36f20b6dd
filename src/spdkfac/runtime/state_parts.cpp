// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/state_parts.h"

#include <array>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/error.h"
#include "spdkfac/kfac/symmetric.h"

namespace spdkfac::runtime {
namespace {

constexpr std::array<std::pair<at::ScalarType, const char*>, 10> kTypes = {{{at::kDouble, "F64"},
                                                                            {at::kLong, "I64"},
                                                                            {at::kFloat, "F32"},
                                                                            {at::kInt, "I32"},
                                                                            {at::kHalf, "F16"},
                                                                            {at::kBFloat16, "BF16"},
                                                                            {at::kShort, "I16"},
                                                                            {at::kChar, "I8"},
                                                                            {at::kByte, "U8"},
                                                                            {at::kBool, "BOOL"}}};

std::int64_t triangle(std::int64_t dim) { return dim * (dim + 1) / 2; }

// How many bytes a part takes in a message.
std::int64_t packed_bytes(const StatePart& part) {
  return static_cast<std::int64_t>(tensor_bytes(packed_spec("", part)));
}

}  // namespace

std::vector<StatePart> parts_of(const kfac::RunningAverage& average, const at::Tensor& inverted) {
  std::vector<StatePart> parts = {{"average", average.mean(), /*symmetric=*/true},
                                  {"weight", average.weight()}};
  if (inverted.defined()) parts.push_back({"inverted_diagonal", inverted});
  return parts;
}

std::vector<StatePart> parts_of(const kfac::Inverse& inverse,
                                const std::optional<kfac::AdamMoments>& moments,
                                const std::optional<kfac::BasisMoments>& basis_moments) {
  std::vector<StatePart> parts;
  if (keeps_basis(inverse.solver)) {
    parts = {{"eigenvectors", inverse.value}, {"eigenvalues", inverse.eigenvalues}};
  } else {
    parts = {{"inverse", inverse.value, /*symmetric=*/true}};
  }
  if (moments) {
    parts.push_back({"first_moment", moments->first});
    parts.push_back({"second_moment", moments->second});
    parts.push_back({"moment_steps", moments->steps});
  }
  if (basis_moments) {
    if (basis_moments->first.numel() > 0) parts.push_back({"basis_first", basis_moments->first});
    parts.push_back({"basis_second", basis_moments->second});
    parts.push_back({"basis_steps", basis_moments->steps});
  }
  return parts;
}

at::Tensor packed_part(const StatePart& part) {
  if (!part.symmetric) return part.tensor.contiguous();
  const at::Tensor& matrix = part.tensor;
  const at::Tensor packed =
      at::empty({matrix.size(0), triangle(matrix.size(-1))}, matrix.options());
  kfac::pack_upper(matrix, packed.view({-1}));
  return packed;
}

void unpack_part(const at::Tensor& packed, const StatePart& part) {
  const at::Tensor there = packed.to(part.tensor.device()).contiguous();
  if (part.symmetric) {
    kfac::unpack_upper(there.view({-1}), part.tensor);
  } else {
    at::Tensor(part.tensor).copy_(there);
  }
}

TensorSpec packed_spec(const std::string& name, const StatePart& part) {
  TensorSpec spec = spec_of(name, part.tensor);
  if (part.symmetric) spec.shape = {part.tensor.size(0), triangle(part.tensor.size(-1))};
  return spec;
}

at::Tensor bytes_of(const std::vector<StatePart>& parts) {
  std::vector<at::Tensor> bytes;
  for (const StatePart& part : parts) {
    bytes.push_back(packed_part(part).reshape({-1}).view(at::kByte));
  }
  return at::cat(bytes);
}

void read_bytes(const at::Tensor& bytes, const std::vector<StatePart>& parts) {
  std::int64_t offset = 0;
  for (const StatePart& part : parts) {
    const std::int64_t size = packed_bytes(part);
    // A copy begins where memory is aligned.
    const at::Tensor own = bytes.narrow(0, offset, size).clone().view(part.tensor.scalar_type());
    unpack_part(own.view(packed_spec("", part).shape), part);
    offset += size;
  }
  SPDKFAC_CHECK(offset == bytes.numel(), "a factor's state has another size than its parts");
}

std::string dtype_name(at::ScalarType type) {
  for (const auto& [one, name] : kTypes) {
    if (one == type) return name;
  }
  throw ConfigError(fmt::format("state: tensors of type {} cannot be saved; use {} to {}",
                                c10::toString(type), kTypes.front().second, kTypes.back().second));
}

at::ScalarType dtype_of(const std::string& name) {
  for (const auto& [type, one] : kTypes) {
    if (one == name) return type;
  }
  throw ConfigError(fmt::format("state: unknown type {}", name));
}

TensorSpec spec_of(const std::string& name, const at::Tensor& tensor) {
  return {name, dtype_name(tensor.scalar_type()), tensor.sizes().vec()};
}

}  // namespace spdkfac::runtime
