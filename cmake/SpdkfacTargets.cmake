# SPDX-License-Identifier: Apache-2.0
# How our targets are made. One library per folder of src/spdkfac, one test program per folder of
# tests, one program per benchmark.

find_program(SPDKFAC_CCACHE_PROGRAM ccache)
mark_as_advanced(SPDKFAC_CCACHE_PROGRAM)
if(SPDKFAC_CCACHE AND SPDKFAC_CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_NOHASHDIR=1 ${SPDKFAC_CCACHE_PROGRAM})
endif()

# What all our targets share.
add_library(spdkfac_options INTERFACE)
target_compile_features(spdkfac_options INTERFACE cxx_std_20)
target_link_libraries(spdkfac_options INTERFACE spdkfac_warnings spdkfac_sanitizers)
# No fused multiply-add behind our back: predictions are the same digits on every machine.
target_compile_options(spdkfac_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
# The layers go into shared libraries, too.
target_compile_options(spdkfac_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-fPIC> $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fPIC>)

# Headers take longer to compile than our sources: torch/torch.h 15 seconds, ATen/ATen.h 7, JSON 2. So
# the sources of a target are compiled together, and names in their anonymous namespaces must differ.
set(SPDKFAC_UNITY_SOURCES 40)  # at most, in one file

function(spdkfac_common target)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_link_libraries(${target} PRIVATE spdkfac_options)
  if(SPDKFAC_UNITY)
    set_target_properties(${target} PROPERTIES
      UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${SPDKFAC_UNITY_SOURCES})
    # GCC takes the sources of a unity build for headers, in which anonymous types are suspicious.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
endfunction()

# spdkfac_library(<name> SOURCES … [DEPS …] [PRIVATE_DEPS …] [TORCH])
# Static library spdkfac_<name> with alias spdkfac::<name>. DEPS are what its headers need. TORCH says
# that it is built on LibTorch.
function(spdkfac_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TORCH" "" "SOURCES;DEPS;PRIVATE_DEPS")
  set(target spdkfac_${name})
  add_library(${target} STATIC ${arg_SOURCES})
  add_library(spdkfac::${name} ALIAS ${target})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${target} PUBLIC ${arg_DEPS} PRIVATE ${arg_PRIVATE_DEPS})
  if(arg_TORCH)
    target_link_libraries(${target} PUBLIC spdkfac_torch)
  endif()
  spdkfac_common(${target})
endfunction()

# spdkfac_cuda_sources(<name> <source>…)
# Adds sources on torch's CUDA to the library spdkfac_<name>, with our kernels (Kernels.cmake).
function(spdkfac_cuda_sources name)
  target_sources(spdkfac_${name} PRIVATE ${ARGN})
  target_link_libraries(spdkfac_${name} PRIVATE spdkfac_kernels CUDA::cudart CUDA::cublas)
endfunction()

# spdkfac_test(<name> SOURCES … DEPS … LABELS <label> [TORCH] [GPU] [MPI_RANKS <count>…])
# One GoogleTest program. tests/ is on the include path, and SPDKFAC_SOURCE_DIR is the root of the
# sources. The whole program is one test of ctest, since starting it takes longer than most cases.
# GPU: once more as <name>.cuda, with the tensors of the tests on the GPU; skipped where there is none.
# Without LABELS, only so. All programs have the label `program` and are built by the target
# test_programs: what runs under the sanitizers.
# MPI_RANKS (with TORCH): also under mpirun, as <name>.<count>ranks with the label multirank; the
# tests find the ranks in support/world.h, which brings the program's main().
if(SPDKFAC_TESTS)
  add_custom_target(test_programs)
endif()
function(spdkfac_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "GPU;TORCH" "" "SOURCES;DEPS;LABELS;MPI_RANKS")
  if(arg_MPI_RANKS)
    list(APPEND arg_SOURCES ${PROJECT_SOURCE_DIR}/tests/support/world_main.cpp)
    list(APPEND arg_DEPS spdkfac::comm)
  endif()
  if(arg_TORCH)
    list(APPEND arg_DEPS spdkfac_torch)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE SPDKFAC_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${arg_DEPS} GTest::gmock GTest::gtest_main)
  spdkfac_common(${name})
  add_dependencies(test_programs ${name})
  if(arg_LABELS)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS};program" TIMEOUT 900
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
endfunction()

# Ranks share few cores: nobody binds, spins or computes with several threads. Leaks inside MPI's own
# libraries are left out (tests/support/lsan.supp). GCC 12's leak check crashes over thread-local
# memory of plugins that MPI has unloaded, unless it does not follow that.
set(SPDKFAC_MPIRUN_FLAGS --allow-run-as-root --oversubscribe --bind-to none
  CACHE STRING "Flags for mpirun in the tests")
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
