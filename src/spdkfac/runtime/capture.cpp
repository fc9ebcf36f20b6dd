// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/capture.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/error.h"
#include "spdkfac/runtime/capture_registry.h"
#include "spdkfac/runtime/kinds/kind.h"

namespace spdkfac::runtime {
namespace {

// Captures that live on this thread.
int& captures_of_this_thread() {
  thread_local int count = 0;
  return count;
}

// Once per process. The libraries are never destroyed: unregistering while the key is on anywhere
// would break the operators there. Statics keep them reachable, so that they are no leaks.
void install() {
  static const bool done = [] {
    if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kCaptureKey)) {
      throw ConfigError(
          "capture: another library in this process uses torch's dispatch key "
          "TESTING_ONLY_GenericMode; use only one of them");
    }
    [[gnu::used]] static auto* fallback =
        new torch::Library(torch::Library::IMPL, "_", kCaptureKey, __FILE__, __LINE__);
    fallback->fallback(torch::CppFunction::makeFallthrough());
    [[gnu::used]] static auto* operators =
        new torch::Library(torch::Library::IMPL, "aten", kCaptureKey, __FILE__, __LINE__);
    for (const KindFile& file : kind_files()) {
      if (file.install != nullptr) file.install(*operators);
    }
    install_losses(*operators);
    return true;
  }();
  SPDKFAC_CHECK(done, "the capture is not installed");
}

}  // namespace

Capture::Capture(const std::vector<TrackedLayer>& layers, const std::shared_ptr<CaptureSink>& sink,
                 const std::vector<at::Tensor>& others)
    : sink_(sink), thread_(std::this_thread::get_id()) {
  install();
  listen(sink_);
  for (std::size_t index = 0; index < layers.size(); ++index) watch(layers[index], index, sink_);
  for (const at::Tensor& other : others) {
    if (other.dim() < 2 || layers.empty()) continue;
    // The model trains when its first layer does.
    watch_other(other, layers.front().training, sink_);
  }
  if (captures_of_this_thread()++ == 0) {
    c10::impl::tls_set_dispatch_key_included(kCaptureKey, true);
  }
}

// Destroyed on another thread, it leaves the key on where it was made, which costs little.
Capture::~Capture() {
  forget(sink_);
  if (thread_ != std::this_thread::get_id()) return;
  if (--captures_of_this_thread() == 0) {
    c10::impl::tls_set_dispatch_key_included(kCaptureKey, false);
  }
}

}  // namespace spdkfac::runtime
