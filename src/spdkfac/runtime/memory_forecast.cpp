// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/memory_forecast.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <string>

#include <ATen/DeviceAccelerator.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spdkfac/base/error.h"
#include "spdkfac/base/host.h"
#include "spdkfac/comm/agreement.h"
#include "spdkfac/runtime/factor_shapes.h"
#include "spdkfac/runtime/layer_state.h"

namespace spdkfac::runtime {
namespace {

// Layers that an error names.
constexpr std::size_t kShownLayers = 4;
// The least limit that an error recommends.
constexpr std::int64_t kLeastDimension = 64;

std::int64_t element_size(const TrackedLayer& layer) {
  return static_cast<std::int64_t>(factor_options(layer.weight).dtype().itemsize());
}

std::int64_t own_elements(const TrackedLayer& layer) {
  std::int64_t elements = 0;
  for (const ParameterPart& own : own_parameters(layer)) elements += own.numel();
  return elements;
}

std::string text_of(Bytes bytes) {
  const double megabytes = static_cast<double>(bytes.value()) / 1e6;
  return megabytes < 1000 ? fmt::format("{:.1f} MB", megabytes)
                          : fmt::format("{:.1f} GB", megabytes / 1000);
}

std::string largest_layers(const std::vector<TrackedLayer>& layers, const std::vector<Bytes>& of) {
  std::vector<std::size_t> order(layers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t one, std::size_t other) { return of[one] > of[other]; });
  order.resize(std::min(order.size(), kShownLayers));
  std::vector<std::string> texts;
  for (const std::size_t layer : order) {
    texts.push_back(fmt::format("{} {}", layers[layer].name, text_of(of[layer])));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

// The largest limit by halves with which all would fit; 0 if none does. Messages shrink at least
// as much.
std::int64_t fitting_dimension(const std::vector<TrackedLayer>& layers, KfacOptions options,
                               const PartsOf& parts, Bytes messages, Bytes available) {
  for (options.max_dimension /= 2; options.max_dimension >= kLeastDimension;
       options.max_dimension /= 2) {
    MemoryForecast smaller = forecast_memory(layers, options, parts);
    smaller.messages = messages;
    if (smaller.total() <= available) return options.max_dimension;
  }
  return 0;
}

}  // namespace

Bytes MemoryForecast::total() const {
  return std::accumulate(layers.begin(), layers.end(), messages + scratch);
}

MemoryForecast forecast_memory(const std::vector<TrackedLayer>& layers, const KfacOptions& options,
                               const PartsOf& parts) {
  MemoryForecast forecast;
  for (std::size_t index = 0; index < layers.size(); ++index) {
    const TrackedLayer& layer = layers[index];
    std::int64_t elements = 0;
    for (const FactorSide side : {FactorSide::kA, FactorSide::kG}) {
      const auto [average, inverse] = parts({index, side});
      const std::int64_t copies = 1 + (average ? 1 : 0) + (inverse ? 1 : 0);
      const FactorShape shape = factor_shape(layer, side, options.factor_limit());
      elements += copies * shape.elements();
      if (side == FactorSide::kG && inverse && options.graft == Graft::kAdam) {
        elements += 2 * own_elements(layer);
      }
      if (inverse && keeps_basis(options.solver)) elements += shape.matrices() * shape.dim();
      if (side == FactorSide::kG && inverse && keeps_moments(options.solver)) {
        const FactorShape of_a = factor_shape(layer, FactorSide::kA, options.factor_limit());
        elements +=
            (options.solver == Solver::kAdam ? 2 : 1) * shape.groups * shape.size * of_a.size;
      }
    }
    forecast.layers.emplace_back(elements * element_size(layer));
    forecast.scratch =
        std::max(forecast.scratch, Bytes(3 * own_elements(layer) * element_size(layer)));
  }
  return forecast;
}

std::int64_t elements_sent(const Plan& plan, const ModelSpec& model) {
  std::int64_t elements = 0;
  for (const Message& message : plan.messages) elements += message.elements;
  if (plan.world == 1) return elements;
  // Inverses lie where their factors have been; eigenvectors are larger.
  for (const ResultBroadcast& broadcast : result_broadcasts(plan, model)) {
    if (broadcast.gradients || keeps_basis(plan.options.solver)) elements += broadcast.elements;
  }
  return elements;
}

std::optional<Bytes> free_memory(at::Device device) {
  if (device.is_cpu()) return available_memory();
  if (!device.is_cuda()) return std::nullopt;
  auto* const allocator = at::getDeviceAllocator(device.type());
  const auto free = static_cast<std::int64_t>(allocator->getMemoryInfo(device.index()).first);
  const auto stats = allocator->getDeviceStats(device.index());
  return Bytes(free + stats.reserved_bytes[0].current - stats.allocated_bytes[0].current);
}

void require_memory(Communicator& communicator, const std::vector<TrackedLayer>& layers,
                    const KfacOptions& options, const PartsOf& parts, Bytes messages, Bytes held) {
  const at::Device device = layers.front().weight.device();
  std::optional<Bytes> available = options.memory_limit;
  if (!available) {
    available = free_memory(device);
    if (available) *available += held;
  }
  MemoryForecast forecast = forecast_memory(layers, options, parts);
  forecast.messages = messages;
  std::exception_ptr failure;
  if (available && forecast.total() > *available) {
    const std::int64_t fits = fitting_dimension(layers, options, parts, messages, *available);
    failure = std::make_exception_ptr(ConfigError(fmt::format(
        "kfac: factors, inverses and messages would take {} on {}, {} {} (largest layers: {}); {}"
        "leave layers out (skip_layers=){}",
        text_of(forecast.total()), device.str(), text_of(*available),
        options.memory_limit ? "are allowed (memory_limit)" : "are free",
        largest_layers(layers, forecast.layers),
        fits > 0 ? fmt::format("pass max_dimension={}, which would fit, or ", fits) : "",
        options.graft == Graft::kAdam ? ", or choose another graft, which has no moments" : "")));
  }
  comm::require_all(communicator, "kfac: the memory that factors take", failure);
}

}  // namespace spdkfac::runtime
