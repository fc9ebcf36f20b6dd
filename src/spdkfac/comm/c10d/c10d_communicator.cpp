// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "spdkfac/base/error.h"
#include "spdkfac/comm/c10d.h"
#include "spdkfac/comm/signature.h"

namespace spdkfac {
namespace {

// The first failure of a communicator; every later operation fails with it.
class Failure {
 public:
  void check() const {
    if (!message_.empty()) throw CommError(message_);
  }
  [[noreturn]] void fail(const std::string& place, std::string cause) {
    cause.erase(std::min(cause.find('\n'), cause.size()));
    message_ = fmt::format(
        "c10d: {} failed ({}); another rank died, stopped, or called a different collective: check "
        "the output of the other ranks",
        place, cause);
    throw CommError(message_);
  }

  // Runs `body`, and turns its exceptions into a CommError that names `place`.
  template <class Body>
  auto guarded(const std::string& place, const Body& body) {
    check();
    try {
      return body();
    } catch (const c10::Error& error) {
      fail(place, error.what_without_backtrace());
    } catch (const std::exception& error) {
      fail(place, error.what());
    }
  }

 private:
  std::string message_;
};

class C10dWork final : public Work::State {
 public:
  C10dWork(c10::intrusive_ptr<c10d::Work> work, std::shared_ptr<Failure> failure, std::string place)
      : work_(std::move(work)), failure_(std::move(failure)), place_(std::move(place)) {}

  // Copies `from` to `to` when the operation is done.
  void copy_back(at::Tensor from, at::Tensor to) { copies_.emplace_back(from, to); }

  void wait() override {
    failure_->guarded(place_, [&] {
      work_->wait();
      for (auto& [from, to] : copies_) to.copy_(from);
      copies_.clear();
    });
  }
  bool done() override { return work_->isCompleted(); }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::shared_ptr<Failure> failure_;
  std::string place_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;
};

class C10dCommunicator final : public Communicator {
 public:
  C10dCommunicator(c10::intrusive_ptr<c10d::ProcessGroup> group, c10::Device device,
                   const CommOptions& options)
      : group_(std::move(group)), device_(device), timeout_(options.timeout) {}

  int rank() const override { return group_->getRank(); }
  int size() const override { return group_->getSize(); }

  Work start(Request request) override {
    const std::string place = comm::place_of(request, rank(), size());
    if (request.operation == Operation::kBarrier) request.tensor = at::zeros({1}, at::kDouble);
    const Request here = request;
    request.tensor = taken(here.tensor);
    if (here.output.defined()) request.output = taken(here.output);
    auto work = std::make_shared<C10dWork>(
        failure_->guarded(place, [&] { return launch(request); }), failure_, place);
    if (here.output.defined()) {
      if (!request.output.is_same(here.output)) work->copy_back(request.output, here.output);
    } else if (!request.tensor.is_same(here.tensor)) {
      work->copy_back(request.tensor, here.tensor);
    }
    return Work(std::move(work));
  }

 private:
  // The tensor on a device that the group supports.
  at::Tensor taken(const at::Tensor& tensor) const {
    for (const c10::Device& device : group_->getDeviceTypes()) {
      if (device.type() == tensor.device().type()) return tensor;
    }
    return tensor.to(device_);
  }

  c10::intrusive_ptr<c10d::Work> launch(const Request& request) const {
    std::vector<at::Tensor> tensors = {request.tensor};
    switch (request.operation) {
      case Operation::kAllReduce:
      case Operation::kBarrier: {
        c10d::AllreduceOptions options;
        options.timeout = timeout_;
        return group_->allreduce(tensors, options);
      }
      case Operation::kReduce: {
        c10d::ReduceOptions options;
        options.rootRank = request.root;
        options.timeout = timeout_;
        return group_->reduce(tensors, options);
      }
      case Operation::kBroadcast: {
        c10d::BroadcastOptions options;
        options.rootRank = request.root;
        options.timeout = timeout_;
        return group_->broadcast(tensors, options);
      }
      case Operation::kAllGather: {
        c10d::AllgatherOptions options;
        options.timeout = timeout_;
        tensors.front() = request.tensor.view({-1});
        std::vector<std::vector<at::Tensor>> rows = {request.output.unbind(0)};
        return group_->allgather(rows, tensors, options);
      }
    }
    return {};
  }

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  c10::Device device_;
  std::chrono::milliseconds timeout_;
  std::shared_ptr<Failure> failure_ = std::make_shared<Failure>();
};

}  // namespace

std::shared_ptr<Communicator> make_c10d_communicator(c10::intrusive_ptr<c10d::ProcessGroup> group,
                                                     c10::Device device,
                                                     const CommOptions& options) {
  return std::make_shared<C10dCommunicator>(std::move(group), device, options);
}

}  // namespace spdkfac
