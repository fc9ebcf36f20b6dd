# SPDX-License-Identifier: Apache-2.0
# spdkfac_kernels: the CUDA kernels of kfac and comm. They know pointers and streams and no torch, so
# that one library of them, compiled once, serves every version of torch.

set(SPDKFAC_KERNELS "" CACHE STRING
  "CUDA kernels: empty (inside what uses them), SHARED (a library), or the path of such a library")
if(NOT SPDKFAC_WITH_CUDA)
  return()
endif()

if(EXISTS "${SPDKFAC_KERNELS}")
  add_library(spdkfac_kernels SHARED IMPORTED GLOBAL)
  set_target_properties(spdkfac_kernels PROPERTIES IMPORTED_LOCATION ${SPDKFAC_KERNELS})
  return()
endif()
set(type STATIC)
if(SPDKFAC_KERNELS STREQUAL "SHARED")
  set(type SHARED)
elseif(SPDKFAC_KERNELS)
  message(FATAL_ERROR "SPDKFAC_KERNELS=${SPDKFAC_KERNELS} does not exist; pass the path of "
    "libspdkfac_kernels.so, SHARED, or nothing")
endif()
set(kfac src/spdkfac/kfac/cuda)
add_library(spdkfac_kernels ${type}
  ${kfac}/average_kernels.cu
  ${kfac}/gradient_kernels.cu
  ${kfac}/graft_kernels.cu
  ${kfac}/inverse_kernels.cu
  ${kfac}/shift_kernels.cu
  ${kfac}/split_kernels.cu
  ${kfac}/symmetric_kernels.cu
  src/spdkfac/comm/cuda/delay.cu)
target_include_directories(spdkfac_kernels PRIVATE src)
spdkfac_common(spdkfac_kernels)
# Each file has constants of its own under the same names; newer CMake would join them, too.
set_target_properties(spdkfac_kernels PROPERTIES UNITY_BUILD OFF
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
# CMake 3.25 drops the standard for nvcc 13, so it is spelt out.
target_compile_options(spdkfac_kernels PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
target_link_libraries(spdkfac_kernels PRIVATE CUDA::cudart)
