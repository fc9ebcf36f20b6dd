// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include <c10/core/Device.h>

namespace spdkfac::kfac {

// Work on a GPU that is queued again and again in the same way, on the same memory: the first time
// as it is, so that libraries make what they need; then it is recorded as a CUDA graph, which later
// calls replay. All of it must be on the current stream, or begin and end there. Inside another
// recording it becomes part of that. Without CUDA it is queued each time.
class GraphedWork {
 public:
  // With `whole_steps` the work needs much memory: what lies unused on the GPU is given back before
  // a recording, which could not take it.
  explicit GraphedWork(std::function<void()> queue, bool whole_steps = false);
  ~GraphedWork();
  // Where the work has variants, each is recorded on its own; they share memory, so that nothing of
  // one may be needed in the next but what was there before the recording.
  void run(int variant = 0);

 private:
  class Graphs;
  std::function<void()> queue_;
  std::unique_ptr<Graphs> graphs_;
};

// Whether work for the device is being recorded now, not run.
bool is_recording(c10::Device device);

}  // namespace spdkfac::kfac
