# SPDX-License-Identifier: Apache-2.0
# Decides whether the build has NCCL: SPDKFAC_WITH_NCCL and the target NCCL::nccl. The one that torch
# was installed with goes first: a process has one libnccl.so.2, and torch's CUDA library needs it.

set(SPDKFAC_WITH_NCCL FALSE)
if(SPDKFAC_NCCL STREQUAL "OFF")
  return()
endif()
if(SPDKFAC_WITH_CUDA)
  cmake_path(GET LibTorch_ROOT PARENT_PATH packages)
  find_path(SPDKFAC_NCCL_INCLUDE nccl.h HINTS ${packages}/nvidia/nccl/include)
  find_library(SPDKFAC_NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${packages}/nvidia/nccl/lib)
  mark_as_advanced(SPDKFAC_NCCL_INCLUDE SPDKFAC_NCCL_LIBRARY)
  if(SPDKFAC_NCCL_INCLUDE AND SPDKFAC_NCCL_LIBRARY)
    set(SPDKFAC_WITH_NCCL TRUE)
    add_library(NCCL::nccl INTERFACE IMPORTED GLOBAL)
    target_include_directories(NCCL::nccl SYSTEM INTERFACE ${SPDKFAC_NCCL_INCLUDE})
    target_link_libraries(NCCL::nccl INTERFACE ${SPDKFAC_NCCL_LIBRARY})
  endif()
endif()
if(SPDKFAC_NCCL STREQUAL "ON" AND NOT SPDKFAC_WITH_NCCL)
  message(FATAL_ERROR "SPDKFAC_NCCL=ON needs the CUDA kernels (SPDKFAC_CUDA), nccl.h and libnccl.so.2; "
    "install them, or pass -DSPDKFAC_NCCL=OFF")
endif()
