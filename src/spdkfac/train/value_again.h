// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include "spdkfac/train/training.h"

namespace spdkfac::train {

// Where the random numbers of a device stand.
class RandomNumbers {
 public:
  explicit RandomNumbers(at::Device device)
      : generator_(at::globalContext().defaultGenerator(device)), state_(generator_.get_state()) {}
  void restore() const { at::Generator(generator_).set_state(state_); }

 private:
  at::Generator generator_;
  at::Tensor state_;
};

// A value that is computed once more from the same random numbers, without gradients. Batch
// statistics and random numbers are then as they were.
double value_again(const Training& training, const RandomNumbers& first,
                   const std::function<at::Tensor()>& compute);

}  // namespace spdkfac::train
