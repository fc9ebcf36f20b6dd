// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace spdkfac {

// How the products of float factors round their operands on a GPU; sums are always kept in float.
// CPUs and doubles take no notice.
enum class Precision { kTf32, kFp32, kBf16 };
const std::vector<std::string>& precision_names();  // tf32, fp32, bf16

// A tensor as products of this precision read it. A float with 11 bits (tf32; bits beyond are cut
// off) or 8 (bf16, as that type) stays what it is whatever kernel reads it, so that products of it
// add up to one sum of squares. Other types are left alone.
at::Tensor rounded_to(Precision precision, const at::Tensor& tensor);

// While it lives, products on this GPU have the precision, whatever torch's own settings are; those
// are put back. They belong to the process, so on other devices they are left alone: ranks that are
// threads would change them under each other. kBf16 is for factors alone (symmetric.h): all else is
// tf32 then.
class PrecisionGuard {
 public:
  PrecisionGuard(Precision precision, c10::Device device);
  ~PrecisionGuard();
  PrecisionGuard(const PrecisionGuard&) = delete;
  PrecisionGuard& operator=(const PrecisionGuard&) = delete;

  // Of the innermost guard; without one torch's settings count and nothing is rounded to bf16.
  static bool rounds_to_bf16();
  // A tensor on a GPU as products read it now. Needed where a sum of squares is put together from
  // several products, or from products and sums: kernels round operands in different ways, and a
  // mixture has negative eigenvalues.
  static at::Tensor rounded(const at::Tensor& tensor);

 private:
  struct Settings {
    bool cublas;
    bool cudnn;
  };
  std::optional<Settings> before_;  // torch's, on a GPU
  bool bf16_;
};

}  // namespace spdkfac
