// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/cuda/replayed.h"

#include <utility>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>

namespace spdkfac {

struct Replayed::Graph {
  at::cuda::CUDAGraph graph;
};

Replayed::Replayed(std::function<void()> queue) : queue_(std::move(queue)) {}
Replayed::~Replayed() = default;

void Replayed::run() {
  if (!std::exchange(warm_, true)) return queue_();
  if (!graph_) {
    auto recorded = std::make_unique<Graph>();
    const c10::cuda::CUDAStreamGuard aside(c10::cuda::getStreamFromPool());
    // Other threads of the program may go on with what a recording would not allow them.
    recorded->graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    queue_();
    recorded->graph.capture_end();
    graph_ = std::move(recorded);
  }
  graph_->graph.replay();
}

}  // namespace spdkfac
