# SPDX-License-Identifier: Apache-2.0
"""The command `spdkfac`: the program that comes with the package, which needs no torch."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

PROGRAM = Path(__file__).parent / "bin" / "spdkfac"


def main() -> NoReturn:
    os.environ.setdefault("SPDKFAC_PYTHON", sys.executable)  # draws the page of `spdkfac report`
    try:
        os.execv(PROGRAM, ["spdkfac", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"spdkfac: {PROGRAM} cannot be run ({error.strerror}); install the package again")
