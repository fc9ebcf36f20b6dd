// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/train/interrupt.h"

#include <csignal>

namespace spdkfac::train {
namespace {

volatile std::sig_atomic_t arrived = 0;

void note(int signal) {
  if (arrived != 0) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);  // takes effect on return
  }
  arrived = signal;
}

void handle(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // writing a file goes on
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

}  // namespace

Interrupt::Interrupt() {
  arrived = 0;
  handle(note);
}

Interrupt::~Interrupt() { handle(SIG_DFL); }

int Interrupt::signal() const { return arrived; }

}  // namespace spdkfac::train
