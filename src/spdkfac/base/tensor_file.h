// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "spdkfac/base/atomic_file.h"
#include "spdkfac/base/error.h"

namespace spdkfac {

// Named tensors and texts in one file, in the layout of safetensors: the length of a JSON header,
// the header, the raw elements. docs/formats.md has the fields. Reading runs no code, whatever the
// file holds, and takes no more memory than the file has bytes.

// The file's size or checksum is wrong: it was cut off, overwritten, or is no such file.
class DamagedFile : public Error {
 public:
  using Error::Error;
};

// `dtype` as in safetensors: F64, F32, F16, BF16, I64, I32, I16, I8, U8 or BOOL.
struct TensorSpec {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  bool operator==(const TensorSpec&) const = default;
};
// 0: no such type.
std::size_t element_bytes(std::string_view dtype);
// Of all elements; the spec is valid.
std::uint64_t tensor_bytes(const TensorSpec& spec);
// For messages: type and shape.
std::string spec_text(const TensorSpec& spec);

struct TensorHeader {
  std::map<std::string, std::string> metadata;
  std::vector<TensorSpec> tensors;  // their elements follow each other in this order
};
// Every field is checked: names are unique, elements follow each other without gaps, and take
// exactly `data_bytes`. What is wrong is a ConfigError.
TensorHeader parse_tensor_header(std::string_view json, std::uint64_t data_bytes,
                                 const std::string& where);
// The reverse, with the checksum as 0; its kChecksumDigits digits follow kChecksumPrefix.
std::string tensor_header_json(const TensorHeader& header);
constexpr std::string_view kChecksumPrefix = R"({"__metadata__":{"crc32":")";
constexpr std::size_t kChecksumDigits = 8;

// Writes a file tensor by tensor; it appears when all are written and finish() was called.
class TensorFileWriter {
 public:
  // Small elements come last, so that all are aligned: aligned_order() sorts them.
  TensorFileWriter(const std::filesystem::path& path, const TensorHeader& header);
  // The elements of the next tensor.
  void append(const void* data, std::size_t bytes);
  void finish();

 private:
  void add(std::string_view bytes);

  AtomicFile file_;
  std::vector<std::uint64_t> sizes_;  // of the tensors
  std::size_t next_ = 0;
  std::uint32_t checksum_ = 0;
};
// The order in which a file may have them: by size of element, else as they are.
void aligned_order(std::vector<TensorSpec>& tensors);

// Opens a file and checks its size and checksum, which reads all of it once.
class TensorFileReader {
 public:
  explicit TensorFileReader(const std::filesystem::path& path);

  const TensorHeader& header() const { return header_; }
  // The index of a tensor that must be there with this type and shape; else a ConfigError.
  std::size_t index(const TensorSpec& expected) const;
  bool contains(const std::string& name) const { return places_.contains(name); }
  const TensorSpec& spec(const std::string& name) const;
  // Its elements; `to` has room for tensor_bytes().
  void read(std::size_t tensor, void* to) const;
  const std::string& where() const { return where_; }

 private:
  void check();
  void read_at(std::uint64_t offset, void* to, std::size_t bytes) const;

  std::string where_;
  FileDescriptor file_;
  TensorHeader header_;
  std::vector<std::uint64_t> offsets_;  // in the file
  std::map<std::string, std::size_t> places_;
};

}  // namespace spdkfac
