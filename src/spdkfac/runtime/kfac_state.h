// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spdkfac/base/tensor_file.h"
#include "spdkfac/runtime/kfac_counters.h"

namespace spdkfac {

// Everything of K-FAC that later steps depend on, as data: a digest of the options, what was
// counted, and tensors by name, on the CPU. docs/formats.md names the tensors of a layer.
struct KfacState {
  std::string options;
  KfacCounters counters;
  std::map<std::string, at::Tensor> tensors;  // `LAYER.KEY`
};

// The state of a Preconditioner tensor by tensor, so that saving takes no more memory than a factor
// does. Ends with the next step. On several ranks all of them read the same tensors in the same
// order.
class KfacStateStream {
 public:
  using Read = std::function<at::Tensor(std::size_t tensor)>;
  KfacStateStream(std::string options, const KfacCounters& counters,
                  std::vector<TensorSpec> tensors, Read read);

  const std::string& options() const { return options_; }
  const KfacCounters& counters() const { return counters_; }
  // The same on all ranks.
  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  // On the CPU. Rank 0 gets all tensors, another rank those that it keeps, and an undefined one for
  // the rest.
  at::Tensor read(std::size_t tensor) { return read_(tensor); }
  // All at once: those that read() gives this rank.
  KfacState read_all();

 private:
  std::string options_;
  KfacCounters counters_;
  std::vector<TensorSpec> tensors_;
  Read read_;
};

// As a file, and back. What cannot be read is a ConfigError; a DamagedFile, if its size or checksum
// is wrong.
void write_kfac_state(const std::filesystem::path& path, const KfacState& state);
KfacState read_kfac_state(const std::filesystem::path& path);

}  // namespace spdkfac
