// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/comm/call_within.h"
#include "spdkfac/comm/cuda/gpu_clock.h"
#include "spdkfac/comm/nccl.h"
#include "spdkfac/comm/nccl/nccl_watch.h"
#include "spdkfac/comm/signature.h"

namespace spdkfac::comm {
namespace {

class NcclWork final : public Work::State {
 public:
  NcclWork(std::shared_ptr<NcclWatch> watch, std::optional<NcclWatch::Events> events,
           std::shared_ptr<const GpuClock> clock, at::Device device)
      : watch_(std::move(watch)),
        events_(std::move(events)),
        clock_(std::move(clock)),
        device_(device) {}

  void wait() override {
    watch_->check();
    if (events_) events_->ended->block(c10::cuda::getCurrentCUDAStream(device_.index()).unwrap());
  }
  bool done() override { return watch_->failed() || !events_ || events_->ended->query(); }
  std::optional<OperationSpan> span() override {
    if (!events_ || watch_->failed()) return std::nullopt;
    events_->ended->synchronize();
    return OperationSpan{(*clock_)(*events_->reached), (*clock_)(*events_->ended)};
  }

 private:
  std::shared_ptr<NcclWatch> watch_;
  std::optional<NcclWatch::Events> events_;  // none for an empty tensor
  std::shared_ptr<const GpuClock> clock_;
  at::Device device_;
};

ncclDataType_t nccl_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    case at::kLong:
      return ncclInt64;
    default:
      return ncclUint8;
  }
}

ncclResult_t call_nccl(const Request& request, ncclComm_t comm, cudaStream_t stream) {
  void* const data = request.tensor.data_ptr();
  const auto count = static_cast<std::size_t>(request.tensor.numel());
  const ncclDataType_t type = nccl_type(request.tensor.scalar_type());
  switch (request.operation) {
    case Operation::kAllReduce:
      return ncclAllReduce(data, data, count, type, ncclSum, comm, stream);
    case Operation::kReduce:
      return ncclReduce(data, data, count, type, ncclSum, request.root, comm, stream);
    case Operation::kBroadcast:
      return ncclBroadcast(data, data, count, type, request.root, comm, stream);
    case Operation::kAllGather:
      return ncclAllGather(data, request.output.data_ptr(), count, type, comm, stream);
    case Operation::kBarrier:
      break;
  }
  return ncclInvalidUsage;
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<Communicator> bootstrap, at::Device device, ncclComm_t comm,
                   const CommOptions& options)
      : bootstrap_(std::move(bootstrap)),
        device_(device),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device.index())),
        clock_(std::make_shared<GpuClock>(stream_)),
        watch_(std::make_shared<NcclWatch>(comm, options.timeout)) {}
  ~NcclCommunicator() override { watch_->close(); }

  int rank() const override { return bootstrap_->rank(); }
  int size() const override { return bootstrap_->size(); }

  Work start(Request request) override {
    watch_->check();
    if (!request.tensor.defined() || request.tensor.is_cpu()) {
      return bootstrap_->start(std::move(request));
    }
    std::optional<NcclWatch::Events> events;
    if (request.tensor.numel() > 0) events = queue(request);
    return Work(std::make_shared<NcclWork>(watch_, std::move(events), clock_, device_));
  }

 private:
  NcclWatch::Events queue(const Request& request) {
    const c10::cuda::CUDAGuard guard(device_);
    c10::Event ready(at::kCUDA);
    ready.record(c10::cuda::getCurrentCUDAStream(device_.index()).unwrap());
    ready.block(stream_.unwrap());
    // The caller may drop the tensors before the stream reaches them.
    request.tensor.record_stream(stream_.unwrap());
    if (request.output.defined()) request.output.record_stream(stream_.unwrap());
    return watch_->queue(place_of(request, rank(), size()), stream_.unwrap(), [&](ncclComm_t comm) {
      return call_nccl(request, comm, stream_.stream());
    });
  }

  std::shared_ptr<Communicator> bootstrap_;
  at::Device device_;
  c10::cuda::CUDAStream stream_;
  std::shared_ptr<const GpuClock> clock_;
  std::shared_ptr<NcclWatch> watch_;
};

// NCCL rejects two ranks on one GPU, but its message does not say so.
void require_own_gpus(Communicator& bootstrap, at::Device device) {
  const auto& uuid = at::cuda::getDeviceProperties(device.index())->uuid.bytes;
  const at::Tensor mine = at::empty({sizeof(uuid)}, at::kByte);
  std::copy_n(uuid, sizeof(uuid), static_cast<char*>(mine.data_ptr()));
  const at::Tensor all = at::empty({bootstrap.size(), mine.numel()}, at::kByte);
  bootstrap.all_gather_async(mine, all, "GPUs of the ranks").wait();
  for (int second = 0; second < bootstrap.size(); ++second) {
    for (int first = 0; first < second; ++first) {
      if (!at::equal(all[first], all[second])) continue;
      throw ConfigError(fmt::format(
          "nccl: ranks {} and {} use the same GPU, which NCCL does not support (rank {} uses {}); "
          "give each rank its own GPU, or use the MPI back end",
          first, second, bootstrap.rank(), device.str()));
    }
  }
}

struct Joined {
  ncclResult_t result = ncclSuccess;
  ncclComm_t comm = nullptr;
};

ncclComm_t join(Communicator& bootstrap, at::Device device, std::chrono::milliseconds timeout) {
  const std::string place =
      fmt::format("start on rank {} of {}", bootstrap.rank(), bootstrap.size());
  ncclUniqueId id{};
  if (bootstrap.rank() == 0) check_nccl(ncclGetUniqueId(&id), place);
  const at::Tensor bytes = at::empty({sizeof(id)}, at::kByte);
  std::copy_n(id.internal, sizeof(id), static_cast<char*>(bytes.data_ptr()));
  bootstrap.broadcast_async(bytes, 0, "NCCL id").wait();
  std::copy_n(static_cast<const char*>(bytes.const_data_ptr()), sizeof(id), id.internal);
  // NCCL waits for all ranks without a limit. A communicator that does not block could be given up,
  // but would start each of its operations on another thread.
  bootstrap.barrier("start of NCCL");
  const int size = bootstrap.size();
  const int rank = bootstrap.rank();
  const std::optional<Joined> joined = call_within<Joined>(
      timeout,
      [=] {
        const c10::cuda::CUDAGuard guard(device);
        Joined mine;
        mine.result = ncclCommInitRank(&mine.comm, size, id, rank);
        return mine;
      },
      [](const Joined& late) {
        if (late.result == ncclSuccess) ncclCommAbort(late.comm);
      });
  if (!joined) {
    const double seconds = std::chrono::duration<double>(timeout).count();
    throw CommError(fmt::format(
        "nccl: {} has not ended after {:.1f} s; another rank died or stopped, or the ranks cannot "
        "reach each other: check the output of the other ranks, set NCCL_DEBUG=INFO for details "
        "and NCCL_SOCKET_IFNAME if there are several networks, or set a timeout longer than {:g} s",
        place, seconds, seconds));
  }
  check_nccl(joined->result, place);
  return joined->comm;
}

}  // namespace
}  // namespace spdkfac::comm

namespace spdkfac {

bool built_with_nccl() { return true; }

std::shared_ptr<Communicator> make_nccl_communicator(std::shared_ptr<Communicator> bootstrap,
                                                     at::Device device,
                                                     const CommOptions& options) {
  if (!device.is_cuda()) {
    throw ConfigError(fmt::format("nccl: {} is not a GPU; use the MPI back end", device.str()));
  }
  if (!device.has_index()) device = at::Device(at::kCUDA, c10::cuda::current_device());
  comm::require_own_gpus(*bootstrap, device);
  const ncclComm_t joined = comm::join(*bootstrap, device, options.timeout);
  return std::make_shared<comm::NcclCommunicator>(std::move(bootstrap), device, joined, options);
}

}  // namespace spdkfac
