# SPDX-License-Identifier: Apache-2.0
# Finds what we build on: in third_party, on the system, or in packages of the Python index below
# CMAKE_PREFIX_PATH, where pip puts them for its builds (pyproject.toml). Nothing is downloaded.

# spdkfac_require(<package> TARGET <target> HEADER <header> DEBIAN <package> [LIBRARY <name>] [PACKAGED <folder>])
# Takes the package's own CMake files. Where they are missing, makes the target from the header and,
# if LIBRARY is given, that library; some systems ship the headers only. PACKAGED is the folder that a
# package of the Python index keeps the header in.
function(spdkfac_require package)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TARGET;HEADER;DEBIAN;LIBRARY;PACKAGED" "")
  find_package(${package} CONFIG QUIET GLOBAL)
  if(TARGET ${arg_TARGET})
    return()
  endif()
  string(MAKE_C_IDENTIFIER ${arg_TARGET} id)
  find_path(${id}_HEADER_DIR ${arg_HEADER} PATH_SUFFIXES ${arg_PACKAGED})
  mark_as_advanced(${id}_HEADER_DIR)
  set(found ${${id}_HEADER_DIR})
  if(found AND arg_LIBRARY)
    find_library(${id}_LIBRARY_FILE ${arg_LIBRARY})
    mark_as_advanced(${id}_LIBRARY_FILE)
    set(found ${${id}_LIBRARY_FILE})
  endif()
  if(NOT found)
    message(FATAL_ERROR
      "${package} is not installed (looked for ${arg_HEADER}); "
      "on Debian: apt-get install ${arg_DEBIAN}, or tools/setup.sh for everything")
  endif()
  add_library(${arg_TARGET} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${arg_TARGET} SYSTEM INTERFACE ${${id}_HEADER_DIR})
  if(arg_LIBRARY)
    target_link_libraries(${arg_TARGET} INTERFACE ${${id}_LIBRARY_FILE})
  endif()
  set(${package}_FROM_HEADERS TRUE PARENT_SCOPE)
  message(STATUS "${package}: no CMake package, using ${${id}_HEADER_DIR}/${arg_HEADER}")
endfunction()

find_package(Threads REQUIRED)
spdkfac_require(nlohmann_json TARGET nlohmann_json::nlohmann_json HEADER nlohmann/json.hpp
  DEBIAN nlohmann-json3-dev PACKAGED nlohmann_json/include)
# Without its library, which other machines may not have.
spdkfac_require(fmt TARGET fmt::fmt-header-only HEADER fmt/format.h DEBIAN libfmt-dev
  PACKAGED cmeel.prefix/include)
if(fmt_FROM_HEADERS)
  target_compile_definitions(fmt::fmt-header-only INTERFACE FMT_HEADER_ONLY)
endif()
if(SPDKFAC_PROGRAMS)
  # No package of the Python index has it.
  add_library(spdkfac_cli11 INTERFACE)
  target_include_directories(spdkfac_cli11 SYSTEM INTERFACE ${PROJECT_SOURCE_DIR}/third_party/CLI11)
endif()

if(SPDKFAC_TESTS)
  find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
  spdkfac_require(GTest TARGET GTest::gtest_main HEADER gtest/gtest.h DEBIAN libgtest-dev
    LIBRARY gtest_main)
  if(GTest_FROM_HEADERS)
    find_library(GTest_CORE_FILE gtest REQUIRED)
    target_link_libraries(GTest::gtest_main INTERFACE ${GTest_CORE_FILE} Threads::Threads)
  endif()
  spdkfac_require(GTest TARGET GTest::gmock HEADER gmock/gmock.h DEBIAN libgmock-dev LIBRARY gmock)
endif()
if(SPDKFAC_BENCHMARKS)
  spdkfac_require(benchmark TARGET benchmark::benchmark_main HEADER benchmark/benchmark.h
    DEBIAN libbenchmark-dev LIBRARY benchmark_main)
  if(benchmark_FROM_HEADERS)
    find_library(benchmark_CORE_FILE benchmark REQUIRED)
    target_link_libraries(benchmark::benchmark_main
      INTERFACE ${benchmark_CORE_FILE} Threads::Threads)
  endif()
endif()
