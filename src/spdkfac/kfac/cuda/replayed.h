// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

namespace spdkfac {

// Work on a GPU that is queued again and again in the same way, on the same memory: the first time
// as it is, so that libraries make what they need; then it is recorded as a CUDA graph, which later
// calls replay. All of it must be on the current stream, or begin and end there.
class Replayed {
 public:
  explicit Replayed(std::function<void()> queue);
  ~Replayed();
  void run();

 private:
  struct Graph;
  std::function<void()> queue_;
  bool warm_ = false;
  std::unique_ptr<Graph> graph_;
};

}  // namespace spdkfac
