// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/kfac_state.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include "spdkfac/base/error.h"

namespace spdkfac::runtime {
namespace {

constexpr const char* kStateFormat = "spdkfac.kfac-state/1";

}  // namespace

void save_state(torch::serialize::OutputArchive& archive, const FactorBank& bank,
                const KfacCounters& counters, const KfacOptions& options) {
  archive.write("format", c10::IValue(std::string(kStateFormat)));
  archive.write("options", c10::IValue(digest(options)));
  archive.write("layers", c10::IValue(static_cast<std::int64_t>(bank.size())));
  const std::vector<std::int64_t> values = {counters.steps,
                                            counters.factor_updates,
                                            counters.inverse_updates,
                                            counters.nonfinite_factors,
                                            counters.inverse_retries,
                                            counters.inverses_kept,
                                            counters.nonfinite_gradients,
                                            counters.layers_without_factors};
  archive.write("counters", c10::IValue(values));
  for (std::size_t index = 0; index < bank.size(); ++index) {
    torch::serialize::OutputArchive layer(archive.compilation_unit());
    layer.write("name", c10::IValue(bank.state(index).layer().name));
    bank.state(index).save(layer);
    archive.write(fmt::format("layer_{}", index), layer);
  }
}

KfacCounters load_state(torch::serialize::InputArchive& archive, FactorBank& bank,
                        const KfacOptions& options) {
  const c10::NoGradGuard no_grad;
  c10::IValue value;
  if (!archive.try_read("format", value) || value.toStringRef() != kStateFormat) {
    throw ConfigError(fmt::format("kfac state: expected format {}; load a state that save() wrote",
                                  kStateFormat));
  }
  archive.read("options", value);
  if (value.toStringRef() != digest(options)) {
    throw ConfigError(fmt::format(
        "kfac state: made with other options (state: {}; here: {}); use the same options",
        value.toStringRef(), digest(options)));
  }
  archive.read("layers", value);
  if (value.toInt() != static_cast<std::int64_t>(bank.size())) {
    throw ConfigError(
        fmt::format("kfac state: has {} layers, but the model has {}; load a state of this model",
                    value.toInt(), bank.size()));
  }
  for (std::size_t index = 0; index < bank.size(); ++index) {
    torch::serialize::InputArchive layer;
    archive.read(fmt::format("layer_{}", index), layer);
    layer.read("name", value);
    if (value.toStringRef() != bank.state(index).layer().name) {
      throw ConfigError(
          fmt::format("kfac state: layer {} is {}, but {} in the model; load a state of this model",
                      index, value.toStringRef(), bank.state(index).layer().name));
    }
    bank.state(index).load(layer);
  }
  archive.read("counters", value);
  const std::vector<std::int64_t> values = value.toIntVector();
  if (values.size() != 8)
    throw ConfigError("kfac state: the counters are missing; load a state that save() wrote");
  return {values[0], values[1], values[2], values[3], values[4], values[5], values[6], values[7]};
}

}  // namespace spdkfac::runtime
