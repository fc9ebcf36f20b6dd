// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "spdkfac/plan/cost_model.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/plan/plan.h"
#include "spdkfac/sim/channel.h"
#include "spdkfac/sim/simulator.h"

namespace spdkfac::sim {

// What a simulated step is made of. `costs` are for the plan's number of ranks.
struct StepToSimulate {
  const Plan& plan;
  const ModelSpec& model;
  const CostModel& costs;
  std::vector<LayerCosts> layers;
  WorkerGrid grid;
  const std::vector<bool>& renewed;  // as in SimulationOptions

  const LayerSpec& layer(int index) const { return model.layers[static_cast<std::size_t>(index)]; }
  // Of handling one tensor that travels.
  Seconds host() const { return plan.world > 1 ? costs.overheads.host_per_tensor : Seconds(0); }
};

// The compute streams of all ranks and the channel between them; it records what they do. Ranks
// that own nothing and are not slow do the same at the same times as others of their column, so one
// stream stands for all of these unless a trace or jitter tells them apart. Columns of several
// gradient workers each have a channel of their own, which messages of all ranks occupy together.
class SimulatedRanks {
 public:
  SimulatedRanks(const StepToSimulate& step, const SimulationOptions& options);

  std::size_t streams() const { return streams_.size(); }
  std::size_t stream_of(int rank) const { return stream_of_rank_[static_cast<std::size_t>(rank)]; }

  // The index of a name in the trace; formats nothing where none is recorded.
  template <class... Args>
  std::uint32_t label(fmt::format_string<Args...> text, Args&&... args) {
    return options_.trace ? trace_.intern(fmt::format(text, std::forward<Args>(args)...)) : 0;
  }
  void reserve(std::size_t events_of_a_rank);

  Seconds now(std::size_t stream) const { return streams_[stream].clock.now(); }
  Seconds last() const;  // of all streams
  int column_of(std::size_t stream) const { return streams_[stream].column; }
  Seconds channel_free() const;  // of all messages
  Seconds channel_free(std::size_t stream) const { return channel(stream).free_at(); }
  void wait_until(std::size_t stream, Seconds time) { streams_[stream].clock.wait_until(time); }
  void all_wait_until(Seconds time);

  // Spends `work` on one compute stream; returns how long it took.
  Seconds compute(std::size_t stream, Seconds work, Category category, std::uint32_t label);
  void compute_everywhere(Seconds work, Category category, std::uint32_t label);

  // A collective that starts when the channel is free and the last rank has come to it, at `ready`;
  // returns when it has arrived. Among all ranks, or those of a column.
  Seconds carry(Seconds ready, Seconds alone, Category category, std::uint32_t label,
                std::int64_t elements, std::optional<int> column = {});

  // Where computation slows messages down, streams must know what they will compute: either
  // announced, or found by going through `stage`, up to the next wait, without doing it.
  bool messages_slow() const { return overheads_.communication_rate_under_computation < 1; }
  void expect(std::size_t stream, Seconds work, Category category);
  template <class Stage>
  void look_ahead(const Stage& stage) {
    if (!messages_slow()) return;
    looks_ahead_ = true;
    stage();
    looks_ahead_ = false;
  }
  bool looks_ahead() const { return looks_ahead_; }

  // By rank, from values by stream.
  std::vector<Seconds> by_rank(const std::vector<Seconds>& by_stream) const;
  Trace take_trace() { return std::move(trace_); }

 private:
  struct Stream {
    RankClock clock;
    int column = 0;
    std::uint64_t tasks_done = 0;
  };

  double slowness(std::size_t stream, Category category) const;
  Seconds duration_from(Seconds start, Seconds alone, std::optional<int> column) const;
  const Channel& channel(std::size_t stream) const {
    return channels_.size() == 1 ? channels_[0]
                                 : channels_[static_cast<std::size_t>(streams_[stream].column)];
  }

  const Overheads& overheads_;
  const SimulationOptions& options_;
  Trace trace_;
  WorkerGrid grid_;
  std::vector<Channel> channels_;  // one, or one for each column
  std::vector<Stream> streams_;
  std::vector<std::size_t> stream_of_rank_;
  bool looks_ahead_ = false;
};

}  // namespace spdkfac::sim
