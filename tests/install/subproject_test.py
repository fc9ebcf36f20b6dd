#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""spdkfac as a part of another project's build (add_subdirectory, and so FetchContent): configured only."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

from projects import ROOT, TORCH_ROOT, configure, project, run, torch_of_version, words

LINES = f"""
add_subdirectory({ROOT} spdkfac)
add_executable(other main.cpp)
target_link_libraries(other PRIVATE spdkfac::spdkfac)
get_property(tests DIRECTORY {ROOT} PROPERTY TESTS)
get_property(targets DIRECTORY {ROOT} PROPERTY BUILDSYSTEM_TARGETS)
message(STATUS "build type: [${{CMAKE_BUILD_TYPE}}]")
message(STATUS "programs go to: [${{CMAKE_RUNTIME_OUTPUT_DIRECTORY}}]")
message(STATUS "tests: [${{tests}}]")
foreach(target spdkfac spdkfac_python minimal planner_bench plan_tests torch)
  if(TARGET ${{target}})
    message(STATUS "unwanted target: ${{target}}")
  endif()
endforeach()
"""


class SubprojectTest(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def test_adds_the_library_and_leaves_the_rest_of_the_build_alone(self) -> None:
        build = self.folder / "build"
        printed = configure(project(self.folder / "source", LINES), build,
                            f"-DSPDKFAC_TORCH_ROOT={TORCH_ROOT}", "-DSPDKFAC_CUDA=OFF").stdout
        self.assertIn("build type: []", printed)
        self.assertIn("programs go to: []", printed)
        self.assertIn("tests: []", printed)
        self.assertNotIn("unwanted target", printed)
        # What `all` builds, and what it would install: the library and the program of the project.
        commands = run("ninja", "-C", build, "-t", "commands", "all").stdout
        self.assertIn("libspdkfac.so", commands)
        self.assertNotIn("/src/spdkfac/cli/", commands)
        script = (build / "cmake_install.cmake").read_text()
        script += (build / "spdkfac/cmake_install.cmake").read_text()
        self.assertNotIn("TYPE FILE", script)

    def test_refuses_a_torch_that_it_was_not_tested_with(self) -> None:
        torch = torch_of_version(self.folder / "torch", "2.99.0")
        refused = configure(ROOT, self.folder / "build", f"-DSPDKFAC_TORCH_ROOT={torch}",
                            "-DSPDKFAC_TESTS=OFF", "-DSPDKFAC_BENCHMARKS=OFF", check=False)
        self.assertNotEqual(refused.returncode, 0)
        said = words(refused.stdout)
        self.assertIn(f"LibTorch in {torch} has version 2.99.0, and spdkfac was tested with 2.11", said)
        self.assertIn("-DSPDKFAC_ANY_TORCH=ON", said)


if __name__ == "__main__":
    unittest.main()
