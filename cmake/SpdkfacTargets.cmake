# SPDX-License-Identifier: Apache-2.0
# How our targets are made. One library per folder of src/spdkfac, one test program per folder of
# tests, one program per benchmark.

include(GoogleTest)

find_program(SPDKFAC_CCACHE_PROGRAM ccache)
mark_as_advanced(SPDKFAC_CCACHE_PROGRAM)
if(SPDKFAC_CCACHE AND SPDKFAC_CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without this sloppiness ccache does not cache sources that use a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
    CCACHE_SLOPPINESS=pch_defines,time_macros ${SPDKFAC_CCACHE_PROGRAM})
endif()

# What all our targets share.
add_library(spdkfac_options INTERFACE)
target_compile_features(spdkfac_options INTERFACE cxx_std_20)
target_link_libraries(spdkfac_options INTERFACE spdkfac_warnings spdkfac_sanitizers)
# No fused multiply-add behind our back: predictions are the same digits on every machine.
target_compile_options(spdkfac_options INTERFACE -ffp-contract=off)

function(spdkfac_common target)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_link_libraries(${target} PRIVATE spdkfac_options)
endfunction()

# spdkfac_library(<name> SOURCES … [DEPS …] [PRIVATE_DEPS …])
# Static library spdkfac_<name> with alias spdkfac::<name>. DEPS are what its headers need.
function(spdkfac_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPS;PRIVATE_DEPS")
  set(target spdkfac_${name})
  add_library(${target} STATIC ${arg_SOURCES})
  add_library(spdkfac::${name} ALIAS ${target})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${target} PUBLIC ${arg_DEPS} PRIVATE ${arg_PRIVATE_DEPS})
  spdkfac_common(${target})
endfunction()

# One precompiled header for all test programs; they have the same flags. Libraries have none: their
# time goes into code generation, and those without JSON would compile more slowly with it.
function(spdkfac_precompile_test target)
  if(NOT SPDKFAC_PCH)
    return()
  endif()
  get_property(owner GLOBAL PROPERTY SPDKFAC_PCH_OWNER)
  if(owner)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  else()
    target_precompile_headers(${target} PRIVATE
      <string> <vector> <gmock/gmock.h> <gtest/gtest.h> <nlohmann/json.hpp>)
    set_property(GLOBAL PROPERTY SPDKFAC_PCH_OWNER ${target})
  endif()
endfunction()

# spdkfac_test(<name> SOURCES … DEPS … LABELS <label>)
# One GoogleTest program; each of its cases is a test of ctest. tests/ is on the include path, and
# SPDKFAC_SOURCE_DIR is the root of the sources.
function(spdkfac_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPS;LABELS")
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE SPDKFAC_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${arg_DEPS} GTest::gmock GTest::gtest_main)
  spdkfac_common(${name})
  spdkfac_precompile_test(${name})
  gtest_discover_tests(${name}
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 120)
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
    ENVIRONMENT "SPDKFAC=$<TARGET_FILE:spdkfac>;SPDKFAC_BUILD_DIR=${CMAKE_BINARY_DIR};CMAKE=${CMAKE_COMMAND};PYTHONDONTWRITEBYTECODE=1")
endfunction()
