// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "spdkfac/base/units.h"

namespace spdkfac {

enum class Operation { kAllReduce, kReduce, kBroadcast, kAllGather, kBarrier };
const char* operation_name(Operation operation);  // all_reduce, reduce, …

// What a cost model charges an operation for: a message may carry a few elements more than the
// tensors that it is for.
struct Load {
  std::int64_t elements = 0;
  std::int64_t tensors = 1;
};

// One operation, as all ranks start it.
struct Request {
  Operation operation = Operation::kBarrier;
  at::Tensor tensor;  // input, and output of all but kAllGather; undefined for kBarrier
  at::Tensor output;  // for kAllGather: [size, elements of tensor]
  int root = 0;       // for kReduce and kBroadcast
  std::string what;   // names the operation in errors and traces; the same on all ranks
  // Of one tensor as it is, unless said.
  std::optional<Load> charged = {};

  Load load() const {
    return charged.value_or(Load{.elements = tensor.defined() ? tensor.numel() : 0});
  }
};

// When an operation began and ended, on this rank's clock.
struct OperationSpan {
  std::chrono::steady_clock::time_point begin;
  std::chrono::steady_clock::time_point end;
};

// An operation under way. The tensors belong to it until wait() returns.
class [[nodiscard]] Work {
 public:
  class State {
   public:
    virtual ~State() = default;
    virtual void wait() = 0;
    virtual bool done() = 0;
    virtual std::optional<OperationSpan> span() { return std::nullopt; }
  };

  Work() = default;  // nothing to wait for
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  // Returns when the result may be used: on the CPU when it is complete, on CUDA when the current
  // stream will wait for it. Throws a CommError if the operation failed. May be called again.
  void wait() const {
    if (state_) state_->wait();
  }
  // Whether the operation has ended; does not wait.
  bool done() const { return !state_ || state_->done(); }
  // Available once done, if the back end measures it.
  std::optional<OperationSpan> span() const { return state_ ? state_->span() : std::nullopt; }

 private:
  std::shared_ptr<State> state_;
};

// What this rank has sent since the communicator was made.
struct Traffic {
  std::int64_t operations = 0;  // without barriers
  Bytes payload;                // total size of their tensors
  // Bytes that a rank sends with bandwidth-optimal collectives, as the mean over the ranks:
  // all_reduce 2·(P−1)/P of its payload, reduce and broadcast (P−1)/P, all_gather (P−1) times.
  double sent = 0;
};

// One rank's view of a group of ranks. All ranks start the same operations in the same order, with
// contiguous tensors of the same size and type (float, double, int64 or uint8), all on one device.
// Operations run in the order in which they were started, concurrently with computation. One thread
// at a time may call a communicator.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Sums over the ranks, in place.
  Work all_reduce_async(const at::Tensor& tensor, std::string what,
                        std::optional<Load> charged = {});
  // Sums over the ranks, in place at the root; on other ranks the contents become undefined.
  Work reduce_async(const at::Tensor& tensor, int root, std::string what,
                    std::optional<Load> charged = {});
  Work broadcast_async(const at::Tensor& tensor, int root, std::string what,
                       std::optional<Load> charged = {});
  // `all` is [size, elements of tensor]: row r is the tensor of rank r.
  Work all_gather_async(const at::Tensor& tensor, const at::Tensor& all, std::string what);
  // Returns when every rank has called it.
  void barrier(std::string what);

  const Traffic& traffic() const { return traffic_; }

  // Starts a request that the functions above have checked and counted. Public for communicators
  // that wrap another.
  virtual Work start(Request request) = 0;

 protected:
  Communicator() = default;

 private:
  Work check_and_start(Request request);

  Traffic traffic_;
};

// A group of one rank: every operation is done at once.
std::shared_ptr<Communicator> make_local_communicator();

}  // namespace spdkfac
