// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/trace/trace.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <ostream>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/json.h"
#include "spdkfac/trace/lane_names.h"

namespace spdkfac {
namespace {

constexpr double kMicrosecondsPerSecond = 1e6;
// Large enough that the stream is called rarely, small enough to stay in the cache.
constexpr std::size_t kFlushBytes = std::size_t{64} * 1024;

std::string escaped(const std::string& name) {
  return Json(name).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Writes the elements of a JSON array, one per line.
class LineWriter {
 public:
  explicit LineWriter(std::ostream& out) : out_(out) {}

  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    buffer_.append(first_ ? std::string_view("\n") : std::string_view(",\n"));
    first_ = false;
    fmt::format_to(std::back_inserter(buffer_), format, std::forward<Args>(args)...);
    if (buffer_.size() >= kFlushBytes) flush();
  }
  void flush() {
    out_.write(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    buffer_.clear();
  }

 private:
  std::ostream& out_;
  fmt::memory_buffer buffer_;
  bool first_ = true;
};

}  // namespace

std::uint32_t Trace::intern(const std::string& name) {
  const auto [entry, is_new] =
      name_index_.try_emplace(name, static_cast<std::uint32_t>(names_.size()));
  if (is_new) names_.push_back(name);
  return entry->second;
}

void Trace::reject(const TraceEvent& event) const {
  SPDKFAC_CHECK(event.rank >= 0 && event.rank < world_,
                fmt::format("rank={}, world={}", event.rank, world_));
  SPDKFAC_CHECK(event.name < names_.size(),
                fmt::format("name={}, names={}", event.name, names_.size()));
  SPDKFAC_CHECK(std::isfinite(event.start.value()), fmt::format("start={}", event.start.value()));
  SPDKFAC_CHECK(std::isfinite(event.duration.value()) && event.duration >= Seconds(0),
                fmt::format("duration={}", event.duration.value()));
  SPDKFAC_CHECK(false, "the event was fine");
}

void Trace::write_perfetto(std::ostream& out) const {
  std::vector<bool> is_present(static_cast<std::size_t>(world_), false);
  for (const TraceEvent& event : events_) is_present[static_cast<std::size_t>(event.rank)] = true;
  std::vector<std::string> names;
  names.reserve(names_.size());
  for (const std::string& name : names_) names.push_back(escaped(name));

  out << R"({"displayTimeUnit":"ms","traceEvents":[)";
  LineWriter writer(out);
  for (int rank = 0; rank < world_; ++rank) {
    if (!is_present[static_cast<std::size_t>(rank)]) continue;
    writer.line(R"({{"ph":"M","pid":{0},"name":"process_name","args":{{"name":"rank {0}"}}}})",
                rank);
    for (std::size_t lane = 0; lane < trace::kLaneNames.size(); ++lane) {
      writer.line(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":"{}"}}}})",
                  rank, lane, trace::kLaneNames[lane]);
    }
  }
  for (const TraceEvent& event : events_) {
    writer.line(R"({{"ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"cat":"{}","name":{}}})",
                event.rank, static_cast<int>(event.lane),
                event.start.value() * kMicrosecondsPerSecond,
                event.duration.value() * kMicrosecondsPerSecond, category_name(event.category),
                names[event.name]);
  }
  writer.flush();
  out << "\n]}\n";
}

void Trace::append(const Trace& other, int rank, Seconds shift) {
  for (TraceEvent event : other.events()) {
    event.rank = rank;
    event.name = intern(other.names()[event.name]);
    event.start += shift;
    add(event);
  }
}

}  // namespace spdkfac
