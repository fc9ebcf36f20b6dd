// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spdkfac/base/tensor_file.h"
#include "spdkfac/kfac/eigen_precondition.h"
#include "spdkfac/kfac/graft.h"
#include "spdkfac/kfac/inverse.h"
#include "spdkfac/kfac/running_average.h"

namespace spdkfac::runtime {

// A tensor of a factor that later steps depend on. Of a symmetric one the upper triangles travel
// and are saved, as [matrices, d(d+1)/2].
struct StatePart {
  std::string key;
  at::Tensor tensor;  // that of the factor itself, not a copy
  bool symmetric = false;
};
// `inverted`: FactorState::inverted, maybe undefined.
std::vector<StatePart> parts_of(const kfac::RunningAverage& average, const at::Tensor& inverted);
// What whoever preconditions a layer keeps of a factor.
std::vector<StatePart> parts_of(const kfac::Inverse& inverse,
                                const std::optional<kfac::AdamMoments>& moments,
                                const std::optional<kfac::BasisMoments>& basis_moments);

// As it travels: contiguous, on the device of the factor.
at::Tensor packed_part(const StatePart& part);
void unpack_part(const at::Tensor& packed, const StatePart& part);
// Type and shape of that.
TensorSpec packed_spec(const std::string& name, const StatePart& part);

// All parts as one message of bytes, and back.
at::Tensor bytes_of(const std::vector<StatePart>& parts);
void read_bytes(const at::Tensor& bytes, const std::vector<StatePart>& parts);

// Types as TensorSpec names them; a ConfigError for types that no state has.
std::string dtype_name(at::ScalarType type);
at::ScalarType dtype_of(const std::string& name);
TensorSpec spec_of(const std::string& name, const at::Tensor& tensor);

}  // namespace spdkfac::runtime
