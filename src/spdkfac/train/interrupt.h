// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spdkfac::train {

// While it lives, the first SIGINT or SIGTERM is only noted, so that the work can end in good
// order; the second ends the program at once. One at a time.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // The signal that arrived, or 0.
  int signal() const;
};

}  // namespace spdkfac::train
