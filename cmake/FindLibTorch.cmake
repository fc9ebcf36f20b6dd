# SPDX-License-Identifier: Apache-2.0
# Finds LibTorch as the Python package `torch` ships it, without its own CMake files: those stop on a
# machine without the CUDA toolkit. Looks in SPDKFAC_TORCH_ROOT, then where find_package(Torch) or
# Torch_DIR found it, then (in an installed package) where it was when spdkfac was built, then with
# Python_EXECUTABLE, .venv and python3. Also a part of the installed package.
#
# Targets: LibTorch::cpu and, when the package was built with CUDA, LibTorch::cuda. They have other
# names than those of find_package(Torch), so both can be used in one project.
# Variables: LibTorch_FOUND, LibTorch_ROOT, LibTorch_VERSION, LibTorch_CUDA (its CUDA version or empty)

set(SPDKFAC_TORCH_ROOT "" CACHE PATH "Folder of the Python package torch (or of a LibTorch archive)")

function(spdkfac_torch_of_python interpreter result)
  set(script "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')")
  # -E: pip builds with a PYTHONPATH that hides the packages of the environment.
  execute_process(COMMAND ${interpreter} -E -c "${script}"
    OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(${result} "${folder}" PARENT_SCOPE)
endfunction()

set(LibTorch_ROOT ${SPDKFAC_TORCH_ROOT})
if(NOT LibTorch_ROOT AND TORCH_INSTALL_PREFIX)
  set(LibTorch_ROOT ${TORCH_INSTALL_PREFIX})
endif()
if(NOT LibTorch_ROOT AND Torch_DIR)  # <root>/share/cmake/Torch
  cmake_path(SET LibTorch_ROOT NORMALIZE ${Torch_DIR}/../../..)
  string(REGEX REPLACE "/$" "" LibTorch_ROOT ${LibTorch_ROOT})
endif()
if(NOT LibTorch_ROOT AND EXISTS "${SPDKFAC_BUILT_TORCH_ROOT}")
  set(LibTorch_ROOT ${SPDKFAC_BUILT_TORCH_ROOT})
endif()
if(NOT LibTorch_ROOT)
  foreach(interpreter ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/.venv/bin/python python3)
    spdkfac_torch_of_python(${interpreter} LibTorch_ROOT)
    if(LibTorch_ROOT)
      break()
    endif()
  endforeach()
endif()

unset(LibTorch_LIBRARY)
unset(LibTorch_VERSION)
if(LibTorch_ROOT)
  find_library(LibTorch_LIBRARY torch_cpu PATHS ${LibTorch_ROOT}/lib NO_DEFAULT_PATH NO_CACHE)
  # Version 2.8 has moved the header.
  foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(NOT LibTorch_VERSION AND EXISTS ${LibTorch_ROOT}/include/${header})
      file(STRINGS ${LibTorch_ROOT}/include/${header} version
        REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      list(TRANSFORM version REPLACE "[^0-9]" "")
      list(JOIN version "." LibTorch_VERSION)
    endif()
  endforeach()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_LIBRARY LibTorch_ROOT
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE
    "install the Python package torch, or pass -DSPDKFAC_TORCH_ROOT=<its folder>")

if(LibTorch_FOUND AND NOT TARGET LibTorch::cpu)
  find_package(Threads REQUIRED)
  add_library(LibTorch::cpu INTERFACE IMPORTED GLOBAL)
  # Behind the system's headers: the package carries a copy of fmt that is not the system's.
  foreach(folder include include/torch/csrc/api/include)
    target_compile_options(LibTorch::cpu INTERFACE
      "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter ${LibTorch_ROOT}/${folder}>")
  endforeach()
  target_link_libraries(LibTorch::cpu INTERFACE
    ${LibTorch_ROOT}/lib/libtorch_cpu.so ${LibTorch_ROOT}/lib/libc10.so Threads::Threads)

  set(LibTorch_CUDA "")
  if(EXISTS ${LibTorch_ROOT}/lib/libtorch_cuda.so)
    if(EXISTS ${LibTorch_ROOT}/version.py)
      file(STRINGS ${LibTorch_ROOT}/version.py cuda_line REGEX "^cuda[^=]*= '")
      string(REGEX REPLACE "^cuda[^=]*= '([0-9.]+)'.*" "\\1" LibTorch_CUDA "${cuda_line}")
    endif()
    add_library(LibTorch::cuda INTERFACE IMPORTED GLOBAL)
    # Operators for CUDA register themselves when the library is loaded; nothing names it otherwise.
    target_link_libraries(LibTorch::cuda INTERFACE LibTorch::cpu
      -Wl,--push-state,--no-as-needed
      ${LibTorch_ROOT}/lib/libtorch_cuda.so ${LibTorch_ROOT}/lib/libc10_cuda.so
      -Wl,--pop-state)
  endif()
endif()
