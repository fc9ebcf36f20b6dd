// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <spdlog/logger.h>

namespace spdkfac {

// Brings what went wrong on the device to the host. On the CPU a flag is looked at when it is
// noted; on CUDA the flags of a step are copied behind its work and looked at when they have
// arrived, a step later; nobody waits. Those of a step that is recorded as a graph are added up on
// the device each time it is replayed, until finish() looks at the sums. Each incident is logged
// once per place.
class IncidentLog {
 public:
  using Count = std::function<void(std::int64_t times)>;
  // For the log; `text` is logged once for each `place`.
  struct Message {
    std::string place;
    std::string text;
  };
  // Of the flag's element at `index`; called only when something happened there.
  using Describe = std::function<Message(std::size_t index)>;

  explicit IncidentLog(std::shared_ptr<spdlog::logger> logger) : logger_(std::move(logger)) {}

  // Notes a flag: a tensor of bool or int32 whose sum is how often it happened.
  void note(const at::Tensor& flag, Describe describe, Count count);

  // Sends off what was noted, and looks at what has arrived.
  void end_step();
  // Waits for everything that was sent or replayed.
  void finish();

 private:
  struct Note {
    at::Tensor flag;  // until it is sent
    std::int64_t size;
    Describe describe;
    Count count;
  };
  struct Pending {
    at::Tensor values;  // on the host
    std::vector<Note> notes;
    c10::Event arrived;
  };

  // The sums of a recorded step's flags.
  struct Recorded {
    at::Tensor sums;
    at::Tensor seen;  // of them, on the host
    std::vector<Note> notes;
  };

  void send(const at::Tensor& flags, std::vector<Note> notes);
  void record(const at::Tensor& flags, std::vector<Note> notes);
  void read(const at::Tensor& values, const std::vector<Note>& notes);
  void look_at(const std::int32_t* values, std::int64_t size, const Describe& describe,
               const Count& count);

  std::shared_ptr<spdlog::logger> logger_;
  std::vector<Note> notes_;
  std::deque<Pending> pending_;
  std::vector<Recorded> recorded_;
  std::map<std::int64_t, at::Tensor> cleared_;  // sums for a step to be recorded, by their number
  std::set<std::string> logged_;
};

}  // namespace spdkfac
