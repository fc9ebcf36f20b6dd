# SPDX-License-Identifier: Apache-2.0
# spdkfac_warnings: what every one of our sources is compiled with. Warnings are errors.

add_library(spdkfac_warnings INTERFACE)
set(warnings
  -Wall
  -Wextra
  -Wpedantic
  -Wshadow
  -Wconversion          # in C++ without -Wsign-conversion: sizes and indices would drown the rest
  -Wnon-virtual-dtor
  -Woverloaded-virtual
  -Wimplicit-fallthrough
  # GCC 12 reports these falsely, in copies of std::optional and in inlined library code.
  -Wno-maybe-uninitialized
  -Wno-stringop-overflow
  -Wno-array-bounds
  -Wno-restrict
  -Werror)
target_compile_options(spdkfac_warnings INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>")
