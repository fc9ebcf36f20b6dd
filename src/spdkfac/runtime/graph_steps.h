// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "spdkfac/runtime/preconditioner.h"

namespace spdkfac {

// Training steps of one process as CUDA graphs: the host launches one graph instead of thousands of
// kernels. Each kind of step (with new factors or without, with new inverses of these layers or
// those or without) runs as it is when it comes first, is recorded when it comes again, and
// replayed from then on.
//   GraphSteps steps(kfac, [&] {
//     optimizer.zero_grad();  loss(model(images)).backward();  kfac.step(rate);  optimizer.step();
//   });
//   images.copy_(next);  steps.run();
// `step` must not wait for the GPU. Tensors that it reads or that are read after it must be made
// outside, and are written in place. What the host decides stays as it was recorded, the learning
// rate too (but see StepControl::set_rate): call forget() when that changes. On the CPU `step` is
// called each time.
class GraphSteps {
 public:
  // Several ranks, adaptive intervals, spread refreshes, lm_damping or options.trace are a
  // ConfigError.
  GraphSteps(Preconditioner& kfac, std::function<void()> step);
  ~GraphSteps();

  void run();
  void forget();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spdkfac
