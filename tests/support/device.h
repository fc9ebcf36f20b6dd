// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <iostream>
#include <string_view>

#include <ATen/ATen.h>

namespace spdkfac::support {

// Where the tensors of a test live: SPDKFAC_TEST_DEVICE is cpu (or unset) or cuda. Without a GPU
// the whole program ends as skipped: exit code 77.
inline at::Device test_device() {
  static const at::Device device = [] {
    const char* wanted = std::getenv("SPDKFAC_TEST_DEVICE");
    if (wanted == nullptr || std::string_view(wanted) == "cpu") return at::Device(at::kCPU);
    if (std::string_view(wanted) != "cuda") {
      std::cerr << "SPDKFAC_TEST_DEVICE=" << wanted << " is unknown; pass cpu or cuda" << std::endl;
      std::_Exit(1);
    }
    if (!at::hasCUDA()) {
      std::cerr << "skipped: SPDKFAC_TEST_DEVICE=cuda, but there is no GPU" << std::endl;
      std::_Exit(77);
    }
    at::globalContext().setAllowTF32CuDNN(false);  // torch's default, and not exact
    return at::Device(at::kCUDA, 0);
  }();
  return device;
}

inline bool on_cuda() { return test_device().is_cuda(); }

inline at::TensorOptions test_options(at::ScalarType type) {
  return at::TensorOptions().dtype(type).device(test_device());
}

}  // namespace spdkfac::support
