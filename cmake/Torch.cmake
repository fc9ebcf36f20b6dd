# SPDX-License-Identifier: Apache-2.0
# Decides what the build can have: SPDKFAC_WITH_TORCH, SPDKFAC_WITH_CUDA, and the target spdkfac_torch
# that everything on LibTorch links. Callers never ask: optional parts are chosen by the linker.

# LibTorch's interface for C++ changes with its minor version.
set(SPDKFAC_TESTED_TORCH 2.11 2.15)

set(SPDKFAC_WITH_TORCH FALSE)
set(SPDKFAC_WITH_CUDA FALSE)

if(NOT SPDKFAC_TORCH STREQUAL "OFF")
  find_package(LibTorch MODULE)
  if(SPDKFAC_TORCH STREQUAL "ON" AND NOT LibTorch_FOUND)
    message(FATAL_ERROR "LibTorch is not installed; run tools/setup.sh --torch, pass "
      "-DSPDKFAC_TORCH_ROOT=<folder of the Python package torch>, or pass -DSPDKFAC_TORCH=OFF")
  endif()
  set(SPDKFAC_WITH_TORCH ${LibTorch_FOUND})
endif()
if(NOT SPDKFAC_WITH_TORCH)
  message(STATUS "LibTorch: not found; spdkfac plans and simulates, but cannot describe or train")
  return()
endif()
string(REGEX MATCH "^[0-9]+\\.[0-9]+" found_torch "${LibTorch_VERSION}")
if(NOT found_torch IN_LIST SPDKFAC_TESTED_TORCH AND NOT SPDKFAC_ANY_TORCH)
  list(JOIN SPDKFAC_TESTED_TORCH ", " tested)
  message(FATAL_ERROR "LibTorch in ${LibTorch_ROOT} has version ${LibTorch_VERSION}, and spdkfac was tested "
    "with ${tested}; install one of these, pass -DSPDKFAC_TORCH_ROOT=<its folder>, "
    "or try this one anyway with -DSPDKFAC_ANY_TORCH=ON")
endif()

# Kernels take minutes to compile, so AUTO wants a GPU to run them on.
set(want_cuda ${SPDKFAC_CUDA})
if(SPDKFAC_CUDA STREQUAL "AUTO")
  file(GLOB gpus /dev/nvidia[0-9]* /dev/dxg)
  set(want_cuda OFF)
  if(gpus)
    set(want_cuda ON)
  endif()
endif()
if(want_cuda)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER AND TARGET LibTorch::cuda)
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80 90)
    endif()
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    string(REGEX MATCH "^[0-9]+" torch_cuda_major "${LibTorch_CUDA}")
    if(CUDAToolkit_VERSION_MAJOR EQUAL torch_cuda_major)
      set(SPDKFAC_WITH_CUDA TRUE)
      set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
    else()
      message(STATUS "CUDA: nvcc is ${CUDAToolkit_VERSION}, torch was built with ${LibTorch_CUDA}; building without CUDA kernels")
    endif()
  endif()
  if(SPDKFAC_CUDA STREQUAL "ON" AND NOT SPDKFAC_WITH_CUDA)
    message(FATAL_ERROR "SPDKFAC_CUDA=ON needs nvcc and a torch built with the same CUDA; "
      "install them, or pass -DSPDKFAC_CUDA=OFF")
  endif()
endif()

add_library(spdkfac_torch INTERFACE)
# at::parallel_for is serial in sources compiled without OpenMP. The runtime is the one that torch
# brings, so that a process has one. The thread sanitizer does not know its locks.
if(NOT SPDKFAC_SANITIZE STREQUAL "thread")
  target_compile_options(spdkfac_torch INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
  if(EXISTS ${LibTorch_ROOT}/lib/libgomp.so.1)
    target_link_libraries(spdkfac_torch INTERFACE ${LibTorch_ROOT}/lib/libgomp.so.1)
  else()
    target_link_options(spdkfac_torch INTERFACE -fopenmp)
  endif()
endif()
if(SPDKFAC_WITH_CUDA)
  set(SPDKFAC_LIBTORCH LibTorch::cuda)
  target_link_libraries(spdkfac_torch INTERFACE LibTorch::cuda $<LINK_ONLY:CUDA::cudart>)
  message(STATUS "LibTorch: ${LibTorch_VERSION} in ${LibTorch_ROOT}, CUDA ${CUDAToolkit_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
else()
  set(SPDKFAC_LIBTORCH LibTorch::cpu)
  target_link_libraries(spdkfac_torch INTERFACE LibTorch::cpu)
  message(STATUS "LibTorch: ${LibTorch_VERSION} in ${LibTorch_ROOT}, without CUDA kernels")
endif()
