// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/product_method.h"

#include <array>
#include <chrono>
#include <map>
#include <mutex>
#include <tuple>

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "spdkfac/kfac/precision.h"
#include "spdkfac/kfac/shifts.h"

namespace spdkfac::kfac {
namespace {

// Below this part of a full product of patches, shifts are faster on CPUs.
constexpr double kWorthShifting = 0.35;
constexpr int kRuns = 5;

// Everything that the times depend on.
using Key =
    std::tuple<std::vector<std::int64_t>, std::array<std::int64_t, 8>, bool, int, bool, bool>;

struct Memory {
  std::mutex mutex;
  std::map<Key, MeasuredMethod> measured;
};

Memory& memory() {
  static Memory shared;
  return shared;
}

Key key_of(const at::Tensor& input, const ConvGeometry& conv, bool channels_last) {
  return {input.sizes().vec(),
          {conv.kernel[0], conv.kernel[1], conv.stride[0], conv.stride[1], conv.padding[0],
           conv.padding[1], conv.dilation[0], conv.dilation[1]},
          channels_last,
          static_cast<int>(input.scalar_type()),
          at::globalContext().allowTF32CuDNN(),
          PrecisionGuard::rounds_to_bf16()};
}

double milliseconds(at::Device device, const std::function<void()>& run) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Stream stream = guard.getStream(device);
  for (int index = 0; index < 2; ++index) run();  // libraries choose algorithms
  guard.synchronizeStream(stream);
  const auto start = std::chrono::steady_clock::now();
  for (int index = 0; index < kRuns; ++index) run();
  guard.synchronizeStream(stream);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
             .count() /
         kRuns;
}

ProductMethod faster(const MeasuredMethod& measured) {
  return measured.shifts_ms < measured.patches_ms ? ProductMethod::kShifts
                                                  : ProductMethod::kPatches;
}

}  // namespace

ProductMethod product_method(const at::Tensor& input, const ConvGeometry& conv,
                             const std::function<void(ProductMethod)>& run) {
  if (!has_shifts(input, conv)) return ProductMethod::kPatches;
  if (input.is_cpu() || at::globalContext().deterministicCuDNN()) {
    return shift_work(input, conv) < kWorthShifting ? ProductMethod::kShifts
                                                    : ProductMethod::kPatches;
  }
  const bool channels_last = input.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
  const Key key = key_of(input, conv, channels_last);
  Memory& shared = memory();
  {
    const std::lock_guard lock(shared.mutex);
    const auto found = shared.measured.find(key);
    if (found != shared.measured.end()) return faster(found->second);
  }
  const MeasuredMethod measured{
      .input = input.sizes().vec(),
      .conv = conv,
      .channels_last = channels_last,
      .patches_ms = milliseconds(input.device(), [&] { run(ProductMethod::kPatches); }),
      .shifts_ms = milliseconds(input.device(), [&] { run(ProductMethod::kShifts); })};
  const std::lock_guard lock(shared.mutex);
  return faster(shared.measured.emplace(key, measured).first->second);
}

std::vector<MeasuredMethod> measured_methods() {
  Memory& shared = memory();
  const std::lock_guard lock(shared.mutex);
  std::vector<MeasuredMethod> all;
  for (const auto& [key, measured] : shared.measured) all.push_back(measured);
  return all;
}

}  // namespace spdkfac::kfac
