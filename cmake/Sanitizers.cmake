# SPDX-License-Identifier: Apache-2.0
# spdkfac_sanitizers: flags of SPDKFAC_SANITIZE. Address and thread cannot be combined.

add_library(spdkfac_sanitizers INTERFACE)
if(SPDKFAC_SANITIZE STREQUAL "address")
  set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(SPDKFAC_SANITIZE STREQUAL "thread")
  set(sanitize -fsanitize=thread -fopenmp-simd)  # OpenMP's threads would be reported
elseif(SPDKFAC_SANITIZE STREQUAL "")
  set(sanitize)
else()
  message(FATAL_ERROR
    "SPDKFAC_SANITIZE=${SPDKFAC_SANITIZE} is unknown; pass address, thread or nothing")
endif()
if(sanitize)
  target_compile_options(spdkfac_sanitizers INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:${sanitize};-fno-omit-frame-pointer>")
  target_link_options(spdkfac_sanitizers INTERFACE ${sanitize})
endif()
