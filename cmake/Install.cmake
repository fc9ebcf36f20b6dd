# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` installs: the program with its data and, with LibTorch, the library.

# The program looks for its data in <its folder>/../share/spdkfac, here as after an installation.
if(SPDKFAC_PROGRAMS)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/share)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/data ${PROJECT_BINARY_DIR}/share/spdkfac SYMBOLIC)
endif()
if(NOT SPDKFAC_INSTALL)
  return()
endif()

# What is installed finds LibTorch where the build found it. CMake itself leaves out folders below the
# sources, such as .venv.
function(spdkfac_installed_rpath target)
  set_target_properties(${target} PROPERTIES
    INSTALL_RPATH ${LibTorch_ROOT}/lib INSTALL_RPATH_USE_LINK_PATH ON)
endfunction()

if(SPDKFAC_PROGRAMS)
  install(TARGETS spdkfac RUNTIME DESTINATION bin)
  if(SPDKFAC_WITH_TORCH AND SPDKFAC_TRAINING_PROGRAM)
    spdkfac_installed_rpath(spdkfac-torch)
    install(TARGETS spdkfac-torch RUNTIME DESTINATION bin)
  endif()
  install(DIRECTORY python/spdkfac/page DESTINATION share/spdkfac PATTERN __pycache__ EXCLUDE)
  install(FILES data/paper.json DESTINATION share/spdkfac)
  install(DIRECTORY data/models data/clusters data/help DESTINATION share/spdkfac
    FILES_MATCHING PATTERN "*.json" PATTERN "*.txt")
endif()

if(SPDKFAC_WITH_TORCH)
  set(package lib/cmake/spdkfac)
  spdkfac_installed_rpath(libspdkfac)
  install(TARGETS libspdkfac EXPORT spdkfac LIBRARY DESTINATION lib)
  install(EXPORT spdkfac NAMESPACE spdkfac:: FILE spdkfacTargets.cmake DESTINATION ${package})
  set(SPDKFAC_HEADER_SOURCES ${PROJECT_SOURCE_DIR}/src)
  configure_file(cmake/InstallHeaders.cmake.in ${PROJECT_BINARY_DIR}/InstallHeaders.cmake @ONLY)
  install(SCRIPT ${PROJECT_BINARY_DIR}/InstallHeaders.cmake)

  include(CMakePackageConfigHelpers)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" SPDKFAC_BUILT_WITH_TORCH ${LibTorch_VERSION})
  configure_package_config_file(cmake/spdkfacConfig.cmake.in
    ${PROJECT_BINARY_DIR}/spdkfacConfig.cmake INSTALL_DESTINATION ${package})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/spdkfacConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/spdkfacConfig.cmake
    ${PROJECT_BINARY_DIR}/spdkfacConfigVersion.cmake cmake/FindLibTorch.cmake
    DESTINATION ${package})
endif()
