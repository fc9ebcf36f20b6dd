// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/train/ranks.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/comm/agreement.h"
#include "spdkfac/comm/clock_offset.h"
#include "spdkfac/comm/mpi.h"
#include "spdkfac/comm/nccl.h"
#include "spdkfac/comm/rank_values.h"
#include "spdkfac/comm/root_work.h"

namespace spdkfac::train {
namespace {

CommOptions comm_options(const RankOptions& options) {
  return {.timeout = std::chrono::seconds(options.timeout_seconds)};
}

// How often a rank that others wait for shows that it lives.
std::chrono::milliseconds beat_of(const RankOptions& options) {
  const auto quarter = std::chrono::milliseconds(options.timeout_seconds * 1000 / 4);
  return std::min<std::chrono::milliseconds>(quarter, std::chrono::seconds(1));
}

std::shared_ptr<Communicator> make_control(const RankOptions& options, at::Device device) {
  const bool nccl = options.backend == "nccl";
  if (nccl && !launched_by_mpi()) {
    throw ConfigError("flags: --backend nccl needs several ranks; start the program with mpirun");
  }
  if (nccl && !device.is_cuda()) {
    throw ConfigError(
        "flags: --backend nccl and --device cpu cannot be combined; remove one of them");
  }
  if (launched_by_mpi()) return make_mpi_communicator(comm_options(options));
  return make_local_communicator();
}

std::shared_ptr<Communicator> make_data(const RankOptions& options, at::Device device,
                                        const std::shared_ptr<Communicator>& control) {
  if (options.backend != "nccl") return control;
  return make_nccl_communicator(control, device, comm_options(options));
}

// A number of the environment, by the first of these variables that is set.
int number_of(std::initializer_list<const char*> variables) {
  for (const char* variable : variables) {
    if (const char* text = std::getenv(variable)) return std::atoi(text);
  }
  return 0;
}

}  // namespace

int rank_on_host() {
  return number_of({"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"});
}

int launched_rank() {
  return number_of({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"});
}

Ranks::Ranks(const RankOptions& options, at::Device device)
    : beat_(beat_of(options)),
      control_(make_control(options, device)),
      communicator_(make_data(options, device, control_)),
      stop_(at::zeros({1})) {}

void Ranks::require_same(const std::string& what, const std::string& value) const {
  spdkfac::comm::require_same(*control_, what, value);
}

void Ranks::require_all(const std::string& what, const std::exception_ptr& failure) const {
  spdkfac::comm::require_all(*control_, what, failure);
}

std::vector<double> Ranks::sum(const std::vector<double>& values) const {
  if (alone()) return values;
  const at::Tensor tensor = at::tensor(values, at::kDouble);
  control_->all_reduce_async(tensor, "metrics").wait();
  return {tensor.const_data_ptr<double>(), tensor.const_data_ptr<double>() + tensor.numel()};
}

std::vector<double> Ranks::largest(const std::vector<double>& values) const {
  return comm::largest_of_ranks(*control_, at::kCPU, values);
}

std::string Ranks::from_first(const std::string& text) const {
  return comm::text_of_rank_zero(*control_, at::kCPU, text);
}

std::vector<std::string> Ranks::texts(const std::string& mine) const {
  return comm::texts_of_ranks(*control_, at::kCPU, mine);
}

Seconds Ranks::clock_offset() const { return spdkfac::comm::clock_offset(*control_); }

at::Tensor Ranks::gather_bytes(const at::Tensor& bytes) const {
  const at::Tensor mine = bytes.contiguous();
  const at::Tensor all = at::empty({size(), mine.numel()}, mine.options());
  control_->all_gather_async(mine, all, "bytes of all ranks").wait();
  return all;
}

void Ranks::share(const at::Tensor& tensor) const {
  if (tensor.numel() == 0) return;
  control_->broadcast_async(tensor.view({-1}).view(at::kByte), 0, "a tensor of the first rank")
      .wait();
}

void Ranks::on_first(const std::string& what, const std::function<void()>& work) const {
  comm::run_on_rank_zero(*control_, beat_, what, work);
}

void Ranks::average(const std::vector<at::Tensor>& buffers) const {
  if (alone()) return;
  std::vector<at::Tensor> parts;
  for (const at::Tensor& buffer : buffers) {
    if (buffer.is_floating_point()) parts.push_back(buffer.reshape({-1}).to(at::kCPU, at::kDouble));
  }
  if (parts.empty()) return;
  const at::Tensor joined = at::cat(parts);
  control_->all_reduce_async(joined, "batch statistics").wait();
  joined.div_(size());
  std::int64_t offset = 0;
  for (at::Tensor buffer : buffers) {
    if (!buffer.is_floating_point()) continue;
    buffer.copy_(joined.narrow(0, offset, buffer.numel()).view(buffer.sizes()));
    offset += buffer.numel();
  }
}

bool Ranks::any_stopped(bool mine) {
  if (alone()) return mine;
  stop_work_.wait();
  const bool stopped = stop_.item<float>() > 0;
  stop_.fill_(mine ? 1 : 0);
  stop_work_ = control_->all_reduce_async(stop_, "whether to stop");
  return stopped;
}

}  // namespace spdkfac::train
