# SPDX-License-Identifier: Apache-2.0
# How our targets are made. One library per folder of src/spdkfac, one test program per folder of
# tests, one program per benchmark.

include(GoogleTest)

find_program(SPDKFAC_CCACHE_PROGRAM ccache)
mark_as_advanced(SPDKFAC_CCACHE_PROGRAM)
if(SPDKFAC_CCACHE AND SPDKFAC_CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without this sloppiness ccache does not cache sources that use a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
    CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_NOHASHDIR=1 ${SPDKFAC_CCACHE_PROGRAM})
endif()

# What all our targets share.
add_library(spdkfac_options INTERFACE)
target_compile_features(spdkfac_options INTERFACE cxx_std_20)
target_link_libraries(spdkfac_options INTERFACE spdkfac_warnings spdkfac_sanitizers)
# No fused multiply-add behind our back: predictions are the same digits on every machine.
target_compile_options(spdkfac_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
if(SPDKFAC_WITH_TORCH)
  # The layers go into shared libraries, too. As an option and not as CMake's property, which gives
  # programs another flag than libraries: they share precompiled headers.
  target_compile_options(spdkfac_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fPIC> $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fPIC>)
endif()

function(spdkfac_common target)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_link_libraries(${target} PRIVATE spdkfac_options)
endfunction()

# spdkfac_precompile(<target> <kind> <header>…)
# Precompiles the headers once per kind, in a target of their own that has the flags of all of the
# kind. DEFINES, DEPS and OPTIONS are what these have besides.
function(spdkfac_precompile target kind)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "HEADERS;DEFINES;DEPS;OPTIONS")
  if(NOT SPDKFAC_PCH)
    return()
  endif()
  set(owner spdkfac_pch_${kind})
  if(NOT TARGET ${owner})
    set(source ${PROJECT_BINARY_DIR}/${owner}.cpp)
    file(CONFIGURE OUTPUT ${source} CONTENT "")
    add_library(${owner} OBJECT ${source})
    target_compile_definitions(${owner} PRIVATE ${arg_DEFINES})
    target_link_libraries(${owner} PRIVATE ${arg_DEPS})
    target_precompile_headers(${owner} PRIVATE ${arg_HEADERS})
    target_compile_options(${owner} PRIVATE ${arg_OPTIONS})
    spdkfac_common(${owner})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
  if(NOT kind STREQUAL "test")
    # With torch's headers, looking up the cache takes longer than a miss is worth.
    set_target_properties(${owner} ${target} PROPERTIES CXX_COMPILER_LAUNCHER "")
  endif()
endfunction()

# Sources that need all of torch/torch.h take ten seconds each, precompiled or not, for its templates
# are made anew; so those of a target are compiled as one. Tensors alone cost little.
set(SPDKFAC_ATEN_HEADERS <ATen/ATen.h> <fmt/format.h>)
set(SPDKFAC_TORCH_HEADERS <torch/torch.h> <fmt/format.h>)
function(spdkfac_unity target kind)
  if(kind STREQUAL "torch" AND SPDKFAC_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
    # GCC takes the sources of a unity build for headers, in which anonymous types are suspicious.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
endfunction()

# spdkfac_library(<name> SOURCES … [DEPS …] [PRIVATE_DEPS …] [TORCH aten|torch])
# Static library spdkfac_<name> with alias spdkfac::<name>. DEPS are what its headers need. TORCH says
# that it is built on LibTorch, and which of its headers to precompile; other libraries have none:
# their time goes into code generation.
function(spdkfac_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TORCH" "SOURCES;DEPS;PRIVATE_DEPS")
  set(target spdkfac_${name})
  add_library(${target} STATIC ${arg_SOURCES})
  add_library(spdkfac::${name} ALIAS ${target})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${target} PUBLIC ${arg_DEPS} PRIVATE ${arg_PRIVATE_DEPS})
  spdkfac_common(${target})
  if(arg_TORCH)
    target_link_libraries(${target} PUBLIC spdkfac_torch)
    string(TOUPPER ${arg_TORCH} kind)
    spdkfac_precompile(${target} ${arg_TORCH} HEADERS ${SPDKFAC_${kind}_HEADERS}
      DEPS spdkfac::base spdkfac_torch)
    spdkfac_unity(${target} ${arg_TORCH})
  endif()
endfunction()

# spdkfac_cuda_sources(<name> <source>…)
# Adds sources for CUDA to the library spdkfac_<name>.
function(spdkfac_cuda_sources name)
  target_sources(spdkfac_${name} PRIVATE ${ARGN})
  # CMake 3.25 drops the standard for nvcc 13, so it is spelt out.
  target_compile_options(spdkfac_${name} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
  target_link_libraries(spdkfac_${name} PUBLIC CUDA::cudart CUDA::cublas)
endfunction()

set(SPDKFAC_TEST_HEADERS <string> <vector> <gmock/gmock.h> <gtest/gtest.h> <nlohmann/json.hpp>)

# spdkfac_test(<name> SOURCES … DEPS … LABELS <label> [TORCH aten|torch] [GPU] [MPI_RANKS <count>…])
# One GoogleTest program; each of its cases is a test of ctest. tests/ is on the include path, and
# SPDKFAC_SOURCE_DIR is the root of the sources. TORCH: the whole program is one test of ctest, since
# loading torch takes longer than most cases. GPU: once more as <name>.cuda, with the tensors of the
# tests on the GPU; skipped where there is none. Without LABELS, only so.
# MPI_RANKS (with TORCH): also under mpirun, as <name>.<count>ranks with the label multirank; the
# tests find the ranks in support/world.h, which brings the program's main().
function(spdkfac_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "GPU" "TORCH" "SOURCES;DEPS;LABELS;MPI_RANKS")
  set(defines SPDKFAC_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(arg_MPI_RANKS)
    list(APPEND arg_SOURCES ${PROJECT_SOURCE_DIR}/tests/support/world_main.cpp)
    list(APPEND arg_DEPS spdkfac::comm)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE ${defines})
  target_link_libraries(${name} PRIVATE ${arg_DEPS} GTest::gmock GTest::gtest_main)
  spdkfac_common(${name})
  if(arg_TORCH)
    string(TOUPPER ${arg_TORCH} kind)
    spdkfac_precompile(${name} ${arg_TORCH}_test
      HEADERS ${SPDKFAC_${kind}_HEADERS} ${SPDKFAC_TEST_HEADERS}
      DEFINES ${defines} DEPS spdkfac::base spdkfac_torch GTest::gmock OPTIONS -O1)
    target_compile_options(${name} PRIVATE -O1)  # compiling them takes longer than running them
    spdkfac_unity(${name} ${arg_TORCH})
    if(arg_LABELS)
      add_test(NAME ${name} COMMAND ${name})
      set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 900
        ENVIRONMENT GOMP_SPINCOUNT=0)  # tests share few cores
    endif()
    if(arg_GPU AND SPDKFAC_WITH_CUDA)
      add_test(NAME ${name}.cuda COMMAND ${name})
      set_tests_properties(${name}.cuda PROPERTIES LABELS gpu TIMEOUT 900 SKIP_RETURN_CODE 77
        ENVIRONMENT SPDKFAC_TEST_DEVICE=cuda)
    endif()
    foreach(ranks ${arg_MPI_RANKS})
      spdkfac_mpi_test(${name}.${ranks}ranks RANKS ${ranks}
        COMMAND $<TARGET_FILE:${name}> LABELS multirank)
    endforeach()
    if(arg_MPI_RANKS AND arg_GPU AND SPDKFAC_WITH_CUDA)
      spdkfac_mpi_test(${name}.2ranks.cuda RANKS 2
        COMMAND $<TARGET_FILE:${name}> LABELS gpu ENVIRONMENT SPDKFAC_TEST_DEVICE=cuda)
    endif()
    return()
  endif()
  spdkfac_precompile(${name} test HEADERS ${SPDKFAC_TEST_HEADERS}
    DEFINES ${defines} DEPS spdkfac::base GTest::gmock)
  gtest_discover_tests(${name}
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 120)
endfunction()

# Ranks share few cores: nobody binds, spins or computes with several threads. Leaks inside MPI's own
# libraries are left out (tests/support/lsan.supp). GCC 12's leak check crashes over thread-local
# memory of plugins that MPI has unloaded, unless it does not follow that.
set(SPDKFAC_MPIRUN_FLAGS --allow-run-as-root --oversubscribe --bind-to none
  CACHE STRING "Flags of mpirun in the tests")
mark_as_advanced(SPDKFAC_MPIRUN_FLAGS)

# spdkfac_mpi_environment(<test> [<variable>=<value>…])
# Scripts find mpirun in MPIRUN (empty without MPI) and MPIRUN_FLAGS.
function(spdkfac_mpi_environment test)
  set(mpirun)
  if(SPDKFAC_WITH_MPI AND MPIEXEC_EXECUTABLE)
    set(mpirun ${MPIEXEC_EXECUTABLE})
  endif()
  list(JOIN SPDKFAC_MPIRUN_FLAGS " " flags)
  set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT
    GOMP_SPINCOUNT=0 OMP_NUM_THREADS=1 MPIRUN=${mpirun} MPIRUN_FLAGS=${flags} ${ARGN})
  set_tests_properties(${test} PROPERTIES ENVIRONMENT_MODIFICATION
    "ASAN_OPTIONS=string_append::fast_unwind_on_malloc=0:intercept_tls_get_addr=0;LSAN_OPTIONS=string_append::suppressions=${PROJECT_SOURCE_DIR}/tests/support/lsan.supp:print_suppressions=0")
endfunction()

# spdkfac_mpi_test(<name> RANKS <count> COMMAND … LABELS <label> [ENVIRONMENT <variable>=<value>…])
# A test of ctest that runs a command under mpirun. Exit code 77 means skipped.
function(spdkfac_mpi_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "RANKS" "COMMAND;LABELS;ENVIRONMENT")
  if(SPDKFAC_WITH_MPI AND MPIEXEC_EXECUTABLE)
    add_test(NAME ${name} COMMAND ${MPIEXEC_EXECUTABLE} ${SPDKFAC_MPIRUN_FLAGS}
      ${MPIEXEC_NUMPROC_FLAG} ${arg_RANKS} ${arg_COMMAND})
  else()
    add_test(NAME ${name} COMMAND sh -c
      "echo 'skipped: this build has no MPI, or there is no mpirun'; exit 77")
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 900 SKIP_RETURN_CODE 77
    PROCESSORS ${arg_RANKS})
  spdkfac_mpi_environment(${name} ${arg_ENVIRONMENT})
endfunction()

# spdkfac_benchmark(<name> SOURCES … DEPS …)
# One Google Benchmark program. SPDKFAC_SOURCE_DIR is the root of the sources.
function(spdkfac_benchmark name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPS")
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/benchmarks)
  target_compile_definitions(${name} PRIVATE SPDKFAC_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${arg_DEPS} benchmark::benchmark_main)
  spdkfac_common(${name})
endfunction()

# spdkfac_script_test(<name> COMMAND … LABELS <label> [TIMEOUT <seconds>])
# A test of ctest that runs a command with SPDKFAC set to the program. Exit code 77 means skipped.
function(spdkfac_script_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "COMMAND;LABELS")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${arg_COMMAND} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES
    LABELS "${arg_LABELS}"
    TIMEOUT ${arg_TIMEOUT}
    SKIP_RETURN_CODE 77
    ENVIRONMENT "SPDKFAC=$<TARGET_FILE:spdkfac>;SPDKFAC_BUILD_DIR=${PROJECT_BINARY_DIR};CMAKE=${CMAKE_COMMAND};PYTHONDONTWRITEBYTECODE=1;GOMP_SPINCOUNT=0")
endfunction()
