// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <unordered_map>
#include <vector>

#include "spdkfac/base/category.h"
#include "spdkfac/base/units.h"

namespace spdkfac {

enum class Lane : std::uint8_t { kCompute, kChannel };

struct TraceEvent {
  std::int32_t rank = 0;
  std::uint32_t name = 0;  // index into Trace::names()
  Lane lane = Lane::kCompute;
  Category category = Category::kForwardBackward;
  Seconds start;
  Seconds duration;
  std::int64_t elements = 0;  // of a message, where it is known

  Seconds end() const { return start + duration; }
};

// What every rank did during one iteration, written by the simulator and by the runtime.
// Events of one rank and lane are added in order of time and do not overlap.
class Trace {
 public:
  explicit Trace(int world = 1) : world_(world) {}

  int world() const { return world_; }
  const std::vector<TraceEvent>& events() const { return events_; }
  const std::vector<std::string>& names() const { return names_; }
  // The end of the last event of any rank; the iteration starts at zero.
  Seconds iteration() const { return iteration_; }

  // Index of `name`, added on first use.
  std::uint32_t intern(const std::string& name);
  void reserve(std::size_t events) { events_.reserve(events); }
  // Inline, because a simulation adds millions. An event that cannot be is an InternalError.
  void add(const TraceEvent& event) {
    const bool sound = event.rank >= 0 && event.rank < world_ && event.name < names_.size() &&
                       std::isfinite(event.start.value()) &&
                       std::isfinite(event.duration.value()) && event.duration >= Seconds(0);
    if (!sound) [[unlikely]] {
      reject(event);
    }
    if (iteration_ < event.end()) iteration_ = event.end();
    events_.push_back(event);
  }

  // Adds the events of another rank's trace, later by `shift`, as those of `rank`.
  void append(const Trace& other, int rank, Seconds shift);

  // Chrome trace events in microseconds; opens in ui.perfetto.dev as it is.
  void write_perfetto(std::ostream& out) const;

 private:
  [[noreturn]] void reject(const TraceEvent& event) const;

  int world_;
  Seconds iteration_;
  std::vector<TraceEvent> events_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::uint32_t> name_index_;
};

}  // namespace spdkfac
