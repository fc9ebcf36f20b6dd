#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The references are complete: every public header and name, every option in a docstring; tables between marks."""

from __future__ import annotations

import ast
import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/docs"))
import cpp_reference  # noqa: E402
import python_reference  # noqa: E402
import tables  # noqa: E402

HEADER = """// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace spdkfac {

class Elsewhere;

// Holds a number.
//   Box box(1);
class Box {
 public:
  explicit Box(int number) : number_(number) {}
  // What it holds.
  int number() const { return number_; }

 private:
  int number_;
};

// Both add.
int add(int a, int b);
double add(double a, double b);

inline int twice(int a) {
  return 2 * a;
}

enum class Colour { kRed, kGreen };

}  // namespace spdkfac
"""


class CppReferenceTest(unittest.TestCase):
    def setUp(self) -> None:
        self.found = {each.name: each for each in cpp_reference.declarations(HEADER)}

    def test_finds_each_declaration_once(self) -> None:
        self.assertEqual(list(self.found), ["Elsewhere", "Box", "add", "twice", "Colour"])

    def test_shows_contracts_without_private_parts_and_bodies(self) -> None:
        box = self.found["Box"]
        self.assertEqual(box.comment, ["Holds a number.", "  Box box(1);"])
        self.assertEqual("\n".join(box.lines), "class Box {\n public:\n  explicit Box(int number);\n"
                                               "  // What it holds.\n  int number() const;\n};")
        self.assertEqual(self.found["twice"].lines, ["inline int twice(int a);"])

    def test_overloads_that_follow_each_other_are_one(self) -> None:
        self.assertEqual(self.found["add"].comment, ["Both add."])
        self.assertEqual(len(self.found["add"].lines), 2)

    def test_has_every_header_that_the_public_one_includes(self) -> None:
        page = cpp_reference.page(ROOT / "src")
        umbrella = (ROOT / "src/spdkfac/spdkfac.h").read_text(encoding="utf-8")
        headers = re.findall(r'#include "([^"]+)"', umbrella)
        self.assertEqual(re.findall(r"^### (\S+)$", page, re.M), headers)
        for name in ("Preconditioner", "KfacOptions", "GraphSteps", "make_plan", "ConfigError"):
            self.assertIn(f"\n#### {name} {{", page)
        self.assertNotIn("private:", page)


class PythonReferenceTest(unittest.TestCase):
    def test_has_every_public_name(self) -> None:
        page = python_reference.page(ROOT / "python/spdkfac")
        tree = ast.parse((ROOT / "python/spdkfac/__init__.py").read_text(encoding="utf-8"))
        names = next(ast.literal_eval(node.value) for node in tree.body
                     if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__")
        for name in names:
            if name != "__version__":
                self.assertRegex(page, rf"(::: spdkfac\.\w+\.{name}\n|`spdkfac\.{name}`)")

    def test_docstrings_list_exactly_the_options(self) -> None:
        for file, name in (("optimizer", "SPDKFACOptimizer"), ("planning", "plan"), ("planning", "simulate"),
                           ("planning", "compare")):
            tree = ast.parse((ROOT / f"python/spdkfac/{file}.py").read_text(encoding="utf-8"))
            node = next(each for each in tree.body if getattr(each, "name", "") == name)
            if isinstance(node, ast.ClassDef):
                node = next(each for each in node.body if getattr(each, "name", "") == "__init__")
            assert isinstance(node, ast.FunctionDef)
            arguments = [each.arg for each in (*node.args.args, *node.args.kwonlyargs) if each.arg != "self"]
            arguments += [f"**{node.args.kwarg.arg}"] if node.args.kwarg else []
            listed = re.findall(r"^    (\*{0,2}\w+): ", ast.get_docstring(node) or "", re.M)
            self.assertEqual(sorted(listed), sorted(arguments), name)


class SnippetsTest(unittest.TestCase):
    """Python and console blocks run elsewhere: tests/python/docs_test.py and tools/check_console.py."""

    def blocks(self, page: str, language: str) -> list[str]:
        text = (ROOT / page).read_text(encoding="utf-8")
        found = re.findall(rf"^```{language}\n(.*?)^```", text, re.S | re.M)
        self.assertTrue(found, page)
        return found

    def test_cpp_is_part_of_programs_that_are_built_and_run(self) -> None:
        programs = [(ROOT / name).read_text(encoding="utf-8") for name in ("tests/consumer/main.cpp", "examples/minimal.cpp")]
        for page in ("README.md", "docs/first-steps-cpp.md"):
            for block in self.blocks(page, "cpp"):
                self.assertTrue(any(block in program for program in programs), f"{page}: {block}")

    def test_cmake_is_that_of_a_project_that_is_built(self) -> None:
        lines = (ROOT / "tests/consumer/CMakeLists.txt").read_text(encoding="utf-8").splitlines()
        for page in ("README.md", "docs/first-steps-cpp.md"):
            for block in self.blocks(page, "cmake"):
                self.assertLessEqual(set(block.splitlines()), set(lines), page)

    def test_commands_are_there(self) -> None:
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
        for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]:
            text = page.read_text(encoding="utf-8")
            for target in re.findall(r"(?:`|^    |^)make ([a-z]+)(?=[`\s])", text, re.M):
                self.assertIn(target, targets, page)
            for script in re.findall(r"(?:`|^    |^)((?:tools|examples)/[\w/.]+\.(?:sh|py))", text, re.M):
                self.assertTrue((ROOT / script).is_file(), f"{page}: {script}")


class TablesTest(unittest.TestCase):
    def test_columns_of_numbers_are_right_aligned(self) -> None:
        self.assertEqual(tables.table(["", "ms"], [["a", "1"], ["b", "20"]]),
                         "| | ms |\n|---|--:|\n| a | 1 |\n| b | 20 |\n")

    def test_every_mark_has_an_end(self) -> None:
        for page in tables.PAGES:
            text = page.read_text(encoding="utf-8")
            self.assertEqual(text.count("<!-- made: "), len(tables.MARKED.findall(text)), page)


if __name__ == "__main__":
    unittest.main()
