// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <torch/library.h>
#include <torch/nn/module.h>

#include "spdkfac/kfac/precondition.h"
#include "spdkfac/runtime/tracked_layer.h"

namespace spdkfac::runtime {

// One kind of layers that K-FAC covers. A new kind is an entry in a file of this folder, listed in
// kind.cpp, and one in python/spdkfac/kinds.py; kinds/README.md says how.
struct CoveredKind {
  LayerKind kind;
  kfac::WeightLayout layout;
  // Dimensions of a convolution; 0 for others.
  std::int64_t dimensions = 0;
  bool transposed = false;
  bool diagonal_a = false;  // nothing else of A is there
};
const CoveredKind& kind_of(LayerKind kind);

// The layers that a module of torch::nn holds itself; their names are those inside the module.
std::vector<TrackedLayer> layers_of(const torch::nn::Module& module);

// A file of this folder: its kinds, the layers that it finds in a module, and the operators that
// are calls of its layers, which it shows to those who watch (capture_registry.h).
struct KindFile {
  std::vector<CoveredKind> kinds;
  std::vector<TrackedLayer> (*layers_of)(const torch::nn::Module& module) = nullptr;
  void (*install)(torch::Library& operators) = nullptr;
};
KindFile linear_kinds();
KindFile convolution_kinds();
KindFile attention_kinds();
KindFile embedding_kinds();
KindFile norm_kinds();
const std::vector<KindFile>& kind_files();

}  // namespace spdkfac::runtime
