# SPDX-License-Identifier: Apache-2.0
# Decides whether the build has the Python package: SPDKFAC_WITH_PYTHON, Python_add_library, the target
# spdkfac_pybind11 and, with LibTorch, SPDKFAC_TORCH_PYTHON_LIBRARY. It is for the interpreter that
# LibTorch was found with.

set(SPDKFAC_WITH_PYTHON FALSE)
if(SPDKFAC_PYTHON STREQUAL "OFF" OR (SPDKFAC_PYTHON STREQUAL "AUTO" AND NOT PROJECT_IS_TOP_LEVEL))
  return()
endif()
set(missing "")
if(NOT SPDKFAC_PROGRAMS)
  set(missing "SPDKFAC_PROGRAMS=ON")
elseif(SPDKFAC_SANITIZE)
  # A module under a sanitizer needs the interpreter to preload it.
  set(missing "a build without sanitizers")
elseif(SPDKFAC_WITH_TORCH AND NOT EXISTS ${LibTorch_ROOT}/lib/libtorch_python.so)
  set(missing "libtorch_python.so (the LibTorch archive does not contain it)")
else()
  if(NOT Python_EXECUTABLE AND EXISTS ${PROJECT_SOURCE_DIR}/.venv/bin/python)
    set(Python_EXECUTABLE ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  endif()
  find_package(Python 3.10 QUIET COMPONENTS Interpreter Development.Module)
  # torch brings a copy, which its own modules need.
  find_path(SPDKFAC_PYBIND11_DIR pybind11/pybind11.h
    HINTS ${LibTorch_ROOT}/include PATH_SUFFIXES pybind11/include)
  mark_as_advanced(SPDKFAC_PYBIND11_DIR)
  if(NOT Python_FOUND)
    set(missing "Python 3.10 with its headers (on Debian: apt-get install python3-dev)")
  elseif(NOT SPDKFAC_PYBIND11_DIR)
    set(missing "pybind11 (on Debian: apt-get install pybind11-dev)")
  endif()
endif()
if(missing STREQUAL "")
  set(SPDKFAC_WITH_PYTHON TRUE)
  set(SPDKFAC_TORCH_PYTHON_LIBRARY ${LibTorch_ROOT}/lib/libtorch_python.so)
  add_library(spdkfac_pybind11 INTERFACE)
  # Behind the system's headers: torch's copy lies beside its copy of fmt.
  target_compile_options(spdkfac_pybind11 INTERFACE "SHELL:-idirafter ${SPDKFAC_PYBIND11_DIR}")
  message(STATUS "Python: package for ${Python_EXECUTABLE} (${Python_VERSION})")
elseif(SPDKFAC_PYTHON STREQUAL "ON")
  message(FATAL_ERROR "SPDKFAC_PYTHON=ON needs ${missing}; install it, or pass -DSPDKFAC_PYTHON=OFF")
else()
  message(STATUS "Python: not building the package, because this is missing: ${missing}")
endif()
