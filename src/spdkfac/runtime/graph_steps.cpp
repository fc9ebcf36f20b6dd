// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/graph_steps.h"

#include <utility>

#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/kfac/graphed_work.h"
#include "spdkfac/runtime/preconditioner_impl.h"

namespace spdkfac {

class GraphSteps::Impl {
 public:
  Impl(Preconditioner& kfac, std::function<void()> step)
      : kfac_(*kfac.impl_),
        on_gpu_(kfac.layers().front().weight.is_cuda()),
        step_(std::move(step)) {
    if (kfac.options().trace) {
      throw ConfigError(
          "kfac: steps that run as CUDA graphs cannot be traced; switch options.trace off");
    }
    if (kfac.ranks() > 1) {
      throw ConfigError(
          fmt::format("kfac: steps of {} ranks cannot run as CUDA graphs; run them without, or "
                      "train on one rank",
                      kfac.ranks()));
    }
    if (kfac.options().interval == Refresh::kAdaptive) {
      throw ConfigError(
          "kfac: steps that run as CUDA graphs cannot have adaptive intervals, which the host "
          "decides on; choose interval auto or fixed");
    }
    if (keeps_basis(kfac.options().solver)) {
      throw ConfigError(fmt::format(
          "kfac: steps that run as CUDA graphs cannot have solver={}, whose eigenvectors the host "
          "asks for; choose solver inverse",
          solver_names()[static_cast<std::size_t>(kfac.options().solver)]));
    }
    if (kfac.options().spread_refreshes) {
      throw ConfigError(
          "kfac: steps that run as CUDA graphs cannot have spread refreshes (spread_refreshes), "
          "whose steps all differ; switch it off");
    }
    if (kfac.options().lm_damping) {
      throw ConfigError(
          "kfac: steps that run as CUDA graphs cannot have lm_damping, whose damping changes; "
          "switch it off");
    }
    forget();
  }

  void run() {
    if (!on_gpu_) return step_();
    called_ = false;
    const int variant = kfac_.variant();
    steps_->run(variant);
    if (!called_) kfac_.count_replayed_step(variant);
  }

  void forget() {
    steps_ = std::make_unique<kfac::GraphedWork>([this] {
      called_ = true;
      step_();
    });
  }

 private:
  Preconditioner::Impl& kfac_;
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
