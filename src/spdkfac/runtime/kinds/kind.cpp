// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/kinds/kind.h"

#include "spdkfac/base/check.h"

namespace spdkfac::runtime {

const std::vector<KindFile>& kind_files() {
  static const std::vector<KindFile> files = {linear_kinds(), convolution_kinds(),
                                              attention_kinds(), embedding_kinds(), norm_kinds()};
  return files;
}

const CoveredKind& kind_of(LayerKind kind) {
  for (const KindFile& file : kind_files()) {
    for (const CoveredKind& one : file.kinds) {
      if (one.kind == kind) return one;
    }
  }
  SPDKFAC_CHECK(false, "a kind of layers without an entry");
}

std::vector<TrackedLayer> layers_of(const torch::nn::Module& module) {
  for (const KindFile& file : kind_files()) {
    std::vector<TrackedLayer> found = file.layers_of(module);
    if (!found.empty()) return found;
  }
  return {};
}

}  // namespace spdkfac::runtime
