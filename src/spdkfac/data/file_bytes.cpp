// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/data/file_bytes.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>

#include <fmt/format.h>
#include <zlib.h>

#include "spdkfac/base/error.h"

namespace spdkfac::data {
namespace {

using Bytes8 = std::vector<std::uint8_t>;

// Several times the largest file of any data set we read; a wrong path must not fill the memory.
constexpr std::size_t kMaxBytes = std::size_t{1} << 30;
constexpr std::size_t kChunk = std::size_t{1} << 20;

struct Place {
  const std::filesystem::path& path;
  const std::string& remedy;

  [[noreturn]] void fail(const std::string& what) const {
    throw ConfigError(fmt::format("{}: {}; {}", path.string(), what, remedy));
  }
  void check_size(std::size_t size) const {
    if (size > kMaxBytes) fail("is larger than 1 GiB");
  }
};

Bytes8 read_plain(const Place& place) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(place.path.c_str(), "rb"),
                                                             &std::fclose);
  const auto reason = [] { return std::generic_category().message(errno); };
  if (!file) place.fail(fmt::format("cannot be opened ({})", reason()));
  Bytes8 bytes;
  while (true) {
    const std::size_t before = bytes.size();
    bytes.resize(before + kChunk);
    const std::size_t got = std::fread(bytes.data() + before, 1, kChunk, file.get());
    bytes.resize(before + got);
    if (std::ferror(file.get()) != 0) place.fail(fmt::format("cannot be read ({})", reason()));
    if (got < kChunk) return bytes;
    place.check_size(bytes.size());
  }
}

// One gzip member; zlib checks its checksum and length.
Bytes8 decompress(Bytes8 compressed, const Place& place) {
  z_stream stream{};
  constexpr int kGzipOnly = 16 + MAX_WBITS;
  if (inflateInit2(&stream, kGzipOnly) != Z_OK) throw Error("zlib: cannot be initialised");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, &inflateEnd);
  stream.next_in = compressed.data();
  stream.avail_in = static_cast<uInt>(compressed.size());
  Bytes8 bytes;
  int status = Z_OK;
  while (status != Z_STREAM_END) {
    const std::size_t before = bytes.size();
    bytes.resize(before + kChunk);
    stream.next_out = bytes.data() + before;
    stream.avail_out = kChunk;
    status = inflate(&stream, Z_NO_FLUSH);
    bytes.resize(before + kChunk - stream.avail_out);
    if (status == Z_BUF_ERROR || (status == Z_OK && stream.avail_in == 0 && stream.avail_out > 0)) {
      place.fail(fmt::format("the gzip data ends too early (after {} bytes)", compressed.size()));
    }
    if (status != Z_OK && status != Z_STREAM_END) {
      place.fail(fmt::format("the gzip data is damaged ({})",
                             stream.msg != nullptr ? stream.msg : zError(status)));
    }
    place.check_size(bytes.size());
  }
  if (stream.avail_in > 0) {
    place.fail(fmt::format("{} bytes after the end of the gzip data", stream.avail_in));
  }
  return bytes;
}

}  // namespace

std::vector<std::uint8_t> read_bytes(const std::filesystem::path& path, const std::string& remedy) {
  const Place place{path, remedy};
  Bytes8 bytes = read_plain(place);
  const bool gzip = bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
  return gzip ? decompress(std::move(bytes), place) : bytes;
}

}  // namespace spdkfac::data
