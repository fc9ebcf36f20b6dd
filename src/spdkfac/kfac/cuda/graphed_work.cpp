// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/graphed_work.h"

#include <map>
#include <set>
#include <utility>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>

namespace spdkfac::kfac {
namespace {

bool current_stream_records() {
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

}  // namespace

class GraphedWork::Graphs {
 public:
  explicit Graphs(bool whole_steps) : whole_steps_(whole_steps) {}

  void run(int variant, const std::function<void()>& queue) {
    if (current_stream_records()) return queue();
    if (warm_.insert(variant).second) return queue();
    const auto found = graphs_.find(variant);
    (found == graphs_.end() ? record(variant, queue) : found->second).replay();
  }

 private:
  at::cuda::CUDAGraph& record(int variant, const std::function<void()>& queue) {
    if (whole_steps_) c10::cuda::CUDACachingAllocator::emptyCache();
    const c10::cuda::CUDAStreamGuard aside(c10::cuda::getStreamFromPool());
    // Only a recording that ended is kept.
    std::map<int, at::cuda::CUDAGraph> recorded;
    at::cuda::CUDAGraph& graph = recorded[variant];
    // Other threads of the program may go on with what a recording would not allow them.
    graph.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    try {
      queue();
    } catch (...) {
      end_failed(graph);
      throw;
    }
    graph.capture_end();
    graphs_.merge(recorded);
    return graph;
  }

  // So that the stream runs what it is given again; the first error is the one to tell of.
  static void end_failed(at::cuda::CUDAGraph& graph) noexcept {
    try {
      graph.capture_end();
    } catch (const c10::Error&) {
    }
  }

  const bool whole_steps_;
  at::cuda::MempoolId_t pool_ = at::cuda::graph_pool_handle();
  std::set<int> warm_;
  std::map<int, at::cuda::CUDAGraph> graphs_;
};

GraphedWork::GraphedWork(std::function<void()> queue, bool whole_steps)
    : queue_(std::move(queue)), graphs_(std::make_unique<Graphs>(whole_steps)) {}
GraphedWork::~GraphedWork() = default;

void GraphedWork::run(int variant) { graphs_->run(variant, queue_); }

bool is_recording(c10::Device device) { return device.is_cuda() && current_stream_records(); }

}  // namespace spdkfac::kfac
