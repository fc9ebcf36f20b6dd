// SPDX-License-Identifier: Apache-2.0
// Preloaded into a program, makes its disk slow: fsync() takes SLOW_FSYNC_SECONDS longer.
#include <chrono>
#include <cstdlib>
#include <thread>

#include <sys/syscall.h>
#include <unistd.h>

extern "C" int fsync(int descriptor) {
  if (const char* seconds = std::getenv("SLOW_FSYNC_SECONDS")) {
    std::this_thread::sleep_for(std::chrono::duration<double>(std::atof(seconds)));
  }
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}
