// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/base/error.h"
#include "spdkfac/comm/nccl.h"

namespace spdkfac {

bool built_with_nccl() { return false; }

std::shared_ptr<Communicator> make_nccl_communicator(std::shared_ptr<Communicator>, at::Device,
                                                     const CommOptions&) {
  throw ConfigError(
      "nccl: this build has no NCCL; use the MPI back end, or build with CUDA and NCCL "
      "(-DSPDKFAC_NCCL=ON reports what is missing)");
}

}  // namespace spdkfac
