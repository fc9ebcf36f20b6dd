// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/kfac_state.h"

#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "spdkfac/runtime/counters_json.h"
#include "spdkfac/runtime/state_parts.h"

namespace spdkfac {
namespace {

constexpr const char* kKfacStateFormat = "spdkfac.kfac-state/2";

}  // namespace

KfacStateStream::KfacStateStream(std::string options, const KfacCounters& counters,
                                 std::vector<TensorSpec> tensors, Read read)
    : options_(std::move(options)),
      counters_(counters),
      tensors_(std::move(tensors)),
      read_(std::move(read)) {}

KfacState KfacStateStream::read_all() {
  KfacState state{options_, counters_, {}};
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const at::Tensor tensor = read(i);
    if (tensor.defined()) state.tensors[tensors_[i].name] = tensor;
  }
  return state;
}

void write_kfac_state(const std::filesystem::path& path, const KfacState& state) {
  TensorHeader header;
  header.metadata = {{"format", kKfacStateFormat},
                     {"options", state.options},
                     {"counters", runtime::counters_json(state.counters).dump()}};
  for (const auto& [name, tensor] : state.tensors) {
    header.tensors.push_back(runtime::spec_of(name, tensor));
  }
  aligned_order(header.tensors);
  TensorFileWriter writer(path, header);
  for (const TensorSpec& spec : header.tensors) {
    const at::Tensor tensor = state.tensors.at(spec.name).to(at::kCPU).contiguous();
    writer.append(tensor.const_data_ptr(), tensor.nbytes());
  }
  writer.finish();
}

KfacState read_kfac_state(const std::filesystem::path& path) {
  const TensorFileReader reader(path);
  const auto text = [&](const char* key) {
    const auto found = reader.header().metadata.find(key);
    if (found == reader.header().metadata.end()) {
      throw ConfigError(fmt::format("{}: has no {}; read a file that write_kfac_state() wrote",
                                    reader.where(), key));
    }
    return found->second;
  };
  if (text("format") != kKfacStateFormat) {
    throw ConfigError(
        fmt::format("{}: its format is {}, not {}; read a file that "
                    "write_kfac_state() wrote",
                    reader.where(), text("format"), kKfacStateFormat));
  }
  KfacState state;
  state.options = text("options");
  state.counters = runtime::parse_counters(text("counters"), reader.where() + ": counters");
  for (std::size_t i = 0; i < reader.header().tensors.size(); ++i) {
    const TensorSpec& spec = reader.header().tensors[i];
    const at::Tensor tensor = at::empty(spec.shape, runtime::dtype_of(spec.dtype));
    reader.read(i, tensor.mutable_data_ptr());
    state.tensors[spec.name] = tensor;
  }
  return state;
}

}  // namespace spdkfac
