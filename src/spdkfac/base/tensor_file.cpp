// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/base/tensor_file.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/crc32.h"

namespace spdkfac {
namespace {

static_assert(std::endian::native == std::endian::little, "files hold elements as memory does");

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

std::string length_bytes(std::uint64_t length) {
  std::string bytes(kLengthBytes, '\0');
  std::memcpy(bytes.data(), &length, kLengthBytes);
  return bytes;
}

}  // namespace

TensorFileWriter::TensorFileWriter(const std::filesystem::path& path, const TensorHeader& header)
    : file_(path) {
  for (const TensorSpec& spec : header.tensors) sizes_.push_back(tensor_bytes(spec));
  const std::string json = tensor_header_json(header);
  add(length_bytes(json.size()));
  add(json);
}

void TensorFileWriter::add(std::string_view bytes) {
  checksum_ = crc32(checksum_, bytes.data(), bytes.size());
  file_.append(bytes);
}

void TensorFileWriter::append(const void* data, std::size_t bytes) {
  SPDKFAC_CHECK(next_ < sizes_.size() && sizes_[next_] == bytes,
                fmt::format("tensor {} with {} bytes", next_, bytes));
  ++next_;
  add({static_cast<const char*>(data), bytes});
}

// The checksum is that of the file with 0 in its place.
void TensorFileWriter::finish() {
  SPDKFAC_CHECK(next_ == sizes_.size(), "a tensor was not written");
  file_.overwrite(kLengthBytes + kChecksumPrefix.size(), fmt::format("{:08x}", checksum_));
  file_.commit();
}

TensorFileReader::TensorFileReader(const std::filesystem::path& path)
    : where_(path.string()), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (!file_.is_open()) {
    throw ConfigError(fmt::format("{}: cannot be opened ({}); check the path", where_,
                                  std::generic_category().message(errno)));
  }
  check();
}

void TensorFileReader::check() {
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    throw ConfigError(fmt::format("{}: is not a file; check the path", where_));
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);
  const auto damaged = [&](const std::string& why) {
    throw DamagedFile(fmt::format("{}: cannot be read ({})", where_, why));
  };
  std::uint64_t length = 0;
  if (size < kLengthBytes) damaged(fmt::format("it has only {} bytes", size));
  read_at(0, &length, kLengthBytes);
  if (length > size - kLengthBytes || length < kChecksumPrefix.size() + kChecksumDigits) {
    damaged(fmt::format("its header would have {} of {} bytes", length, size));
  }
  std::string json(length, '\0');
  read_at(kLengthBytes, json.data(), length);
  if (!json.starts_with(kChecksumPrefix)) damaged("it does not begin with a checksum");
  const std::string expected = json.substr(kChecksumPrefix.size(), kChecksumDigits);
  json.replace(kChecksumPrefix.size(), kChecksumDigits, kChecksumDigits, '0');
  std::uint32_t checksum = crc32(0, length_bytes(length).data(), kLengthBytes);
  checksum = crc32(checksum, json.data(), json.size());
  const std::uint64_t begin = kLengthBytes + length;
  std::string piece;
  for (std::uint64_t at = begin; at < size; at += piece.size()) {
    piece.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kPieceBytes, size - at)));
    read_at(at, piece.data(), piece.size());
    checksum = crc32(checksum, piece.data(), piece.size());
  }
  if (fmt::format("{:08x}", checksum) != expected) damaged("its checksum does not match");
  header_ = parse_tensor_header(json, size - begin, where_);
  std::uint64_t offset = begin;
  for (const TensorSpec& spec : header_.tensors) {
    places_[spec.name] = offsets_.size();
    offsets_.push_back(offset);
    offset += tensor_bytes(spec);
  }
}

const TensorSpec& TensorFileReader::spec(const std::string& name) const {
  const auto place = places_.find(name);
  if (place == places_.end()) {
    throw ConfigError(
        fmt::format("{}: has no tensor {}; use a file of the same model", where_, name));
  }
  return header_.tensors[place->second];
}

std::size_t TensorFileReader::index(const TensorSpec& expected) const {
  const TensorSpec& found = spec(expected.name);
  if (found != expected) {
    throw ConfigError(fmt::format("{}: tensor {} is {}, but {} here; use a file of the same model",
                                  where_, expected.name, spec_text(found), spec_text(expected)));
  }
  return places_.at(expected.name);
}

void TensorFileReader::read(std::size_t tensor, void* to) const {
  read_at(offsets_[tensor], to, tensor_bytes(header_.tensors[tensor]));
}

void TensorFileReader::read_at(std::uint64_t offset, void* to, std::size_t bytes) const {
  auto* out = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::pread(file_.get(), out, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      throw Error(
          fmt::format("{}: cannot be read ({}); repeat, or check the disk", where_,
                      got == 0 ? "it became shorter" : std::generic_category().message(errno)));
    }
    out += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
}

}  // namespace spdkfac
