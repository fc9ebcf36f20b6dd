// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spdkfac/comm/communicator.h"
#include "spdkfac/train/train_options.h"

namespace spdkfac::train {

// Ranks on this host before this one, as the launcher tells: which GPU is this rank's.
int rank_on_host();
// The rank that the launcher gave this process; 0 without one.
int launched_rank();

// The processes of a run: those of mpirun, or this one alone. What all ranks must do alike is asked
// here, so that the trainer reads as for one.
class Ranks {
 public:
  // Tensors of the run will be on `device`.
  Ranks(const RankOptions& options, at::Device device);

  int rank() const { return control_->rank(); }
  int size() const { return control_->size(); }
  bool first() const { return rank() == 0; }
  bool alone() const { return size() == 1; }
  // For tensors of the run; what is below travels beside it, on the CPU.
  const std::shared_ptr<Communicator>& communicator() const { return communicator_; }

  // Where values differ every rank throws a ConfigError that says which.
  void require_same(const std::string& what, const std::string& value) const;
  // All ranks or none: `failure` is why this one cannot go on, or null (comm/agreement.h).
  void require_all(const std::string& what, const std::exception_ptr& failure) const;
  // The sums of these numbers over the ranks.
  std::vector<double> sum(const std::vector<double>& values) const;
  // Number by number the largest of the ranks.
  std::vector<double> largest(const std::vector<double>& values) const;
  // The text of the first rank.
  std::string from_first(const std::string& text) const;
  // The texts of all ranks, by rank.
  std::vector<std::string> texts(const std::string& mine) const;
  // How far this rank's clock is ahead of the first one's.
  Seconds clock_offset() const;
  // Row r: the bytes of rank r.
  at::Tensor gather_bytes(const at::Tensor& bytes) const;
  // The first rank's tensor, on the CPU, to all.
  void share(const at::Tensor& tensor) const;
  // Runs `work` on the first rank; the others wait as long as it takes (comm/root_work.h).
  void on_first(const std::string& what, const std::function<void()>& work) const;
  // Averages buffers of floating point, such as batch statistics.
  void average(const std::vector<at::Tensor>& buffers) const;

  // Whether a rank has asked to stop: the same answer on all ranks, for a call some steps ago. Each
  // calls it after each step; nobody waits for it.
  bool any_stopped(bool mine);

 private:
  std::chrono::milliseconds beat_;
  std::shared_ptr<Communicator> control_;
  std::shared_ptr<Communicator> communicator_;
  at::Tensor stop_;
  Work stop_work_;
};

}  // namespace spdkfac::train
