// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/recorded_steps.h"

#include <utility>

#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/kfac/replayed.h"

namespace spdkfac {

class RecordedSteps::Impl {
 public:
  Impl(Preconditioner& kfac, std::function<void()> step)
      : kfac_(kfac), on_gpu_(kfac.layers().front().weight.is_cuda()), step_(std::move(step)) {
    if (kfac.options().trace) {
      throw ConfigError("kfac: recorded steps have no trace; switch options.trace off");
    }
    if (kfac.ranks() > 1) {
      throw ConfigError(
          fmt::format("kfac: steps of {} ranks cannot be recorded; run them as they are, or train "
                      "on one rank",
                      kfac.ranks()));
    }
    forget();
  }

  void run() {
    if (!on_gpu_) return step_();
    called_ = false;
    steps_->run(static_cast<int>(kfac_.coming_step()));
    if (!called_) kfac_.count_replayed_step();
  }

  void forget() {
    steps_ = std::make_unique<Replayed>([this] {
      called_ = true;
      step_();
    });
  }

 private:
  Preconditioner& kfac_;
  bool on_gpu_;
  std::function<void()> step_;
  bool called_ = false;
  std::unique_ptr<Replayed> steps_;
};

RecordedSteps::RecordedSteps(Preconditioner& kfac, std::function<void()> step)
    : impl_(std::make_unique<Impl>(kfac, std::move(step))) {}
RecordedSteps::~RecordedSteps() = default;
void RecordedSteps::run() { impl_->run(); }
void RecordedSteps::forget() { impl_->forget(); }

}  // namespace spdkfac
