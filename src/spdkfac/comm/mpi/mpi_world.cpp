// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/mpi/mpi_world.h"

#include <fmt/format.h>

#include "spdkfac/base/error.h"

namespace spdkfac::comm {

void check_mpi(int code, const char* call, const std::string& place) {
  if (code == MPI_SUCCESS) return;
  std::string text(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  text.resize(static_cast<std::size_t>(length));
  throw CommError(fmt::format("mpi: {} failed ({}: {}); check the output of the other ranks", place,
                              call, text));
}

}  // namespace spdkfac::comm
