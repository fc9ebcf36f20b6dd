# SPDX-License-Identifier: Apache-2.0
"""The Python reference: one entry for each public name of the package, for mkdocstrings to fill."""

from __future__ import annotations

import ast
from pathlib import Path

HEAD = ("# Python reference\n\nEvery public name of the package `spdkfac`, with its docstring. "
        "[Python](../python.md) is the guide.\n")
FIRST = ("SPDKFACOptimizer",)  # what readers come for
COMPILED = {"ConfigError": "A mistake in arguments or files. It is also a ValueError.",
            "CommError": "Another rank died, disagrees or does not answer.",
            "NumericalError": "A matrix that cannot be inverted.",
            "Error": "What all errors of the package derive from."}


def page(package: Path) -> str:
    """The names of `__all__`, by the module that defines them; errors come from the compiled part."""
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    module_of = {alias.asname or alias.name: node.module for node in ast.walk(tree)
                 if isinstance(node, ast.ImportFrom) and node.level == 1 for alias in node.names}
    names: list[str] = next(ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign)
                            and any(isinstance(each, ast.Name) and each.id == "__all__" for each in node.targets))
    names = sorted((name for name in names if not name.startswith("__")), key=lambda name: name not in FIRST)
    entries = [f"::: spdkfac.{module_of[name]}.{name}\n" for name in names if name not in COMPILED]
    errors = [f"| `spdkfac.{name}` | {COMPILED[name]} |\n" for name in names if name in COMPILED]
    return "\n".join([HEAD, *entries]) + "\n## Errors\n\n| error | meaning |\n|---|---|\n" + "".join(errors)
