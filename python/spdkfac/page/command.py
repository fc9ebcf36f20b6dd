# SPDX-License-Identifier: Apache-2.0
"""Draws one page from records of `spdkfac bench` (docs/records.md). Needs the package plotly.

The page is one HTML file that needs nothing else: it opens offline, in any browser. Usage:
  python -m spdkfac.page RECORD.json… --out page.html [--title TITLE]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from . import records

USAGE_MISTAKE = 2


def write(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:64]}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)  # as an ordinary new file, not as a temporary one
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="spdkfac.page", description=__doc__.splitlines()[0])
    parser.add_argument("records", nargs="*", type=Path, metavar="RECORD.json")
    parser.add_argument("--out", type=Path, required=True, metavar="page.html")
    parser.add_argument("--title", default="SPD-KFAC report")
    options = parser.parse_args(arguments)
    try:
        found = [records.read(path) for path in options.records]
    except records.RecordError as error:
        print(f"spdkfac: {error}", file=sys.stderr)
        return USAGE_MISTAKE
    try:
        from . import document  # behind the checks: it loads plotly
    except ModuleNotFoundError as error:
        print(f"spdkfac: report: the Python package {error.name} is missing ({sys.executable}); "
              "pip install plotly numpy, or set SPDKFAC_PYTHON to a Python that has it", file=sys.stderr)
        return USAGE_MISTAKE
    try:
        write(options.out, document.make(found, options.title))
    except OSError as error:
        print(f"spdkfac: {options.out}: --out: cannot be written ({error.strerror}); "
              "check its folder", file=sys.stderr)
        return USAGE_MISTAKE
    return 0
