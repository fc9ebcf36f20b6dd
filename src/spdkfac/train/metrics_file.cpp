// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/train/metrics_file.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "spdkfac/base/error.h"

namespace spdkfac::train {

MetricsFile::MetricsFile(const std::string& path) : path_(path), file_(nullptr, &std::fclose) {
  if (path.empty()) return;
  file_.reset(std::fopen(path.c_str(), "a+"));
  if (!file_) {
    throw ConfigError(fmt::format("{}: cannot be written ({}); check the path of --metrics", path,
                                  std::strerror(errno)));
  }
  // A run that was killed may have left half a line.
  char last = '\n';
  if (std::fseek(file_.get(), -1, SEEK_END) == 0 && std::fread(&last, 1, 1, file_.get()) == 1 &&
      last != '\n') {
    std::fseek(file_.get(), 0, SEEK_END);
    std::fputc('\n', file_.get());
  }
}

void MetricsFile::append(const Json& line) const {
  if (!file_) return;
  const std::string text = line.dump() + "\n";
  std::fseek(file_.get(), 0, SEEK_END);  // between reading and writing
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() ||
      std::fflush(file_.get()) != 0) {
    throw Error(fmt::format("{}: cannot be written ({}); check the free space of its folder", path_,
                            std::strerror(errno)));
  }
}

}  // namespace spdkfac::train
