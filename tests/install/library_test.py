#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The installed library: the project in tests/consumer builds from it in a clean folder and trains."""

from __future__ import annotations

import os
import re
import tempfile
import unittest
from pathlib import Path

from projects import CMAKE, ROOT, TORCH_ROOT, configure, project, run, torch_of_version, words

CONSUMER = ROOT / "tests/consumer"
FILES = ("CMakeLists.txt", "main.cpp")


class LibraryTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = Path(temporary.name)
        cls.prefix = cls.folder / "prefix with space"
        run(CMAKE, "--install", os.environ["SPDKFAC_BUILD_DIR"], "--prefix", cls.prefix)
        cls.find = f"-DCMAKE_PREFIX_PATH={cls.prefix}"

    def test_a_project_of_two_files_builds_and_trains(self) -> None:
        source = self.folder / "consumer"
        source.mkdir()
        for name in FILES:
            (source / name).write_bytes((CONSUMER / name).read_bytes())
        build = self.folder / "consumer build"
        configure(source, build, self.find)
        run(CMAKE, "--build", build)
        printed = run(build / "consumer").stdout
        version = re.search(r"set\(PACKAGE_VERSION \"([0-9.]+)\"\)", (
            self.prefix / "lib/cmake/spdkfac/spdkfacConfigVersion.cmake").read_text())
        self.assertTrue(printed.startswith(f"spdkfac {version[1]}\n"), printed)
        losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", printed)]
        self.assertEqual(len(losses), 5, printed)
        self.assertLess(losses[-1], losses[0] / 20, printed)

    def test_docs_show_the_two_files(self) -> None:
        page = (ROOT / "docs/cpp.md").read_text(encoding="utf-8")
        for name, language in zip(FILES, ("cmake", "cpp")):
            source = (CONSUMER / name).read_text(encoding="utf-8")
            listing = re.sub(r"\A(#|//) SPDX.*\n", "", source)
            self.assertIn(f"```{language}\n{listing}```\n", page, name)

    def test_public_header_includes_neither_json_nor_logging_libraries(self) -> None:
        torch = [flag for folder in ("include", "include/torch/csrc/api/include")
                 for flag in ("-idirafter", f"{TORCH_ROOT}/{folder}")]
        source = self.folder / "include.cpp"
        source.write_text("#include <spdkfac/spdkfac.h>\n")
        needed = run(os.environ["CXX"], "-std=c++20", "-M", source, "-I", self.prefix / "include",
                     *torch).stdout
        self.assertIn("spdkfac/runtime/preconditioner.h", needed)
        self.assertEqual(re.findall(r"\S*/(?:nlohmann|spdlog|CLI)/\S*", needed), [])

    def test_works_with_find_package_of_torch_in_either_order(self) -> None:
        torch = f"list(APPEND CMAKE_PREFIX_PATH {TORCH_ROOT})\nfind_package(Torch REQUIRED)"
        ours = "find_package(spdkfac REQUIRED)"
        consumer = ("add_executable(other main.cpp)\n"
                    "target_link_libraries(other PRIVATE spdkfac::spdkfac torch)\n"
                    "message(STATUS \"root: ${LibTorch_ROOT}\")")
        alone = project(self.folder / "torch", torch)
        if configure(alone, self.folder / "torch build", check=False).returncode != 0:
            self.skipTest("find_package(Torch) fails here without spdkfac, too")
        for name, lines in (("before", f"{torch}\n{ours}"), ("after", f"{ours}\n{torch}")):
            with self.subTest(torch=name):
                source = project(self.folder / name, f"{lines}\n{consumer}")
                printed = configure(source, self.folder / f"{name} build", self.find).stdout
                self.assertIn(f"root: {TORCH_ROOT}\n", printed)

    def test_refuses_a_torch_that_it_was_not_built_with(self) -> None:
        torch = torch_of_version(self.folder / "torch 2.99", "2.99.0")
        options = (self.find, f"-DSPDKFAC_TORCH_ROOT={torch}")
        build = self.folder / "refused build"
        refused = configure(CONSUMER, build, *options, check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn(f"but {torch} has 2.99.0", words(refused.stdout))
        self.assertIn("-DSPDKFAC_ANY_TORCH=ON", refused.stdout)
        configure(CONSUMER, build, *options, "-DSPDKFAC_ANY_TORCH=ON")


if __name__ == "__main__":
    unittest.main()
