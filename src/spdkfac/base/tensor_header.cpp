// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/json.h"
#include "spdkfac/base/tensor_file.h"

namespace spdkfac {
namespace {

constexpr const char* kMetadata = "__metadata__";
constexpr std::size_t kAlignment = 8;
// A dimension of 0 must not hide an overflow of the others.
constexpr std::int64_t kMaxElements = std::int64_t{1} << 56;

constexpr std::array<std::pair<std::string_view, std::size_t>, 10> kTypes = {{{"F64", 8},
                                                                              {"I64", 8},
                                                                              {"F32", 4},
                                                                              {"I32", 4},
                                                                              {"F16", 2},
                                                                              {"BF16", 2},
                                                                              {"I16", 2},
                                                                              {"I8", 1},
                                                                              {"U8", 1},
                                                                              {"BOOL", 1}}};

std::string parse_dtype(const JsonValue& value) {
  std::vector<std::string> names;
  for (const auto& [name, bytes] : kTypes) names.emplace_back(name);
  return names[value.choice(names)];
}

std::vector<std::int64_t> parse_shape(const JsonValue& value) {
  std::vector<std::int64_t> shape;
  std::int64_t elements = 1;
  for (const JsonValue& one : value.array()) {
    const std::int64_t size = one.integer(0, kMaxElements);
    if (size > 0 && elements > kMaxElements / size) value.fail("has too many elements");
    elements *= std::max<std::int64_t>(size, 1);
    shape.push_back(size);
  }
  return shape;
}

// Advances `offset` to the end of the tensor.
TensorSpec parse_spec(const std::string& name, const JsonValue& value, std::uint64_t& offset) {
  JsonObject object(value);
  TensorSpec spec{name, parse_dtype(object.required("dtype")),
                  parse_shape(object.required("shape"))};
  const JsonValue offsets = object.required("data_offsets");
  object.finish();
  const std::vector<JsonValue> both = offsets.array();
  if (both.size() != 2) offsets.fail("expected the begin and the end");
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  const auto begin = static_cast<std::uint64_t>(both[0].integer(0, kLargest));
  const auto end = static_cast<std::uint64_t>(both[1].integer(0, kLargest));
  const std::uint64_t bytes = tensor_bytes(spec);
  if (begin != offset || end < begin || end - begin != bytes) {
    offsets.fail(
        fmt::format("expected [{}, {}] (got [{}, {}])", offset, offset + bytes, begin, end));
  }
  offset = end;
  return spec;
}

}  // namespace

std::size_t element_bytes(std::string_view dtype) {
  for (const auto& [name, bytes] : kTypes) {
    if (name == dtype) return bytes;
  }
  return 0;
}

std::uint64_t tensor_bytes(const TensorSpec& spec) {
  std::uint64_t bytes = element_bytes(spec.dtype);
  for (const std::int64_t size : spec.shape) bytes *= static_cast<std::uint64_t>(size);
  return bytes;
}

std::string spec_text(const TensorSpec& spec) {
  return fmt::format("{} [{}]", spec.dtype, fmt::join(spec.shape, ", "));
}

void aligned_order(std::vector<TensorSpec>& tensors) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorSpec& a, const TensorSpec& b) {
    return element_bytes(a.dtype) > element_bytes(b.dtype);
  });
}

TensorHeader parse_tensor_header(std::string_view json, std::uint64_t data_bytes,
                                 const std::string& where) {
  const Json document = parse_json(json, where);
  JsonObject object{JsonValue(document, where)};
  TensorHeader header;
  std::uint64_t offset = 0;
  for (const auto& [name, value] : object.entries()) {
    if (name == kMetadata) {
      JsonObject texts(value);
      for (const auto& [key, text] : texts.entries()) header.metadata[key] = text.string();
    } else {
      header.tensors.push_back(parse_spec(name, value, offset));
    }
  }
  if (offset != data_bytes) {
    object.fail(fmt::format("its tensors take {} bytes, but there are {}", offset, data_bytes));
  }
  return header;
}

std::string tensor_header_json(const TensorHeader& header) {
  Json json = Json::object();
  Json& metadata = json[kMetadata];
  metadata["crc32"] = std::string(kChecksumDigits, '0');
  for (const auto& [key, text] : header.metadata) metadata[key] = text;
  std::uint64_t offset = 0;
  for (const TensorSpec& spec : header.tensors) {
    SPDKFAC_CHECK(element_bytes(spec.dtype) > 0 && !json.contains(spec.name),
                  fmt::format("tensor {} of type {}", spec.name, spec.dtype));
    const std::uint64_t end = offset + tensor_bytes(spec);
    json[spec.name] = {
        {"dtype", spec.dtype}, {"shape", spec.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = json.dump();
  SPDKFAC_CHECK(text.starts_with(kChecksumPrefix), "the checksum is not the first field");
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  return text;
}

}  // namespace spdkfac
