// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/cli/verbs.h"

namespace spdkfac::cli {

void add_torch_verbs(CLI::App& app) {
  add_calibrate_verb(app);
  add_describe_verb(app);
  add_train_verb(app);
  add_bench_verb(app);
}

void forward_torch_verb(int, char**) {}

}  // namespace spdkfac::cli
