// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/emulated_link.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace spdkfac {
namespace {

using Clock = std::chrono::steady_clock;

class EmulatedWork final : public Work::State {
 public:
  EmulatedWork(Work inner, OperationSpan span) : inner_(std::move(inner)), span_(span) {}

  void wait() override {
    inner_.wait();
    std::this_thread::sleep_until(span_.end);
  }
  bool done() override { return Clock::now() >= span_.end && inner_.done(); }
  std::optional<OperationSpan> span() override { return span_; }

 private:
  Work inner_;
  OperationSpan span_;
};

}  // namespace

EmulatedLink::EmulatedLink(std::shared_ptr<Communicator> inner, Duration duration)
    : inner_(std::move(inner)), duration_(std::move(duration)) {}

Work EmulatedLink::start(Request request) {
  const Seconds length = duration_(request.operation, request.load());
  OperationSpan span;
  span.begin = std::max(link_free_, Clock::now());
  span.end = span.begin +
             std::chrono::ceil<Clock::duration>(std::chrono::duration<double>(length.value()));
  link_free_ = span.end;
  return Work(std::make_shared<EmulatedWork>(inner_->start(std::move(request)), span));
}

}  // namespace spdkfac
