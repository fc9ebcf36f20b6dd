// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/graph_steps.h"

#include <utility>

#include "spdkfac/kfac/graphed_work.h"
#include "spdkfac/runtime/step_control.h"

namespace spdkfac {

class GraphSteps::Impl {
 public:
  Impl(Preconditioner& kfac, std::function<void()> step)
      : control_(kfac), on_gpu_(kfac.layers().front().weight.is_cuda()), step_(std::move(step)) {
    control_.require_recordable();
    forget();
  }

  void run() {
    if (!on_gpu_) return step_();
    called_ = false;
    const int variant = control_.variant();
    steps_->run(variant);
    if (!called_) control_.count_replayed_step(variant);
  }

  void forget() {
    steps_ = std::make_unique<kfac::GraphedWork>(
        [this] {
          called_ = true;
          step_();
        },
        /*whole_steps=*/true);
  }

 private:
  StepControl control_;
  bool on_gpu_;
  std::function<void()> step_;
  bool called_ = false;
  std::unique_ptr<kfac::GraphedWork> steps_;
};

GraphSteps::GraphSteps(Preconditioner& kfac, std::function<void()> step)
    : impl_(std::make_unique<Impl>(kfac, std::move(step))) {}
GraphSteps::~GraphSteps() = default;
void GraphSteps::run() { impl_->run(); }
void GraphSteps::forget() { impl_->forget(); }

}  // namespace spdkfac
