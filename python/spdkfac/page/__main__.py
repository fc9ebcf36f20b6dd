# SPDX-License-Identifier: Apache-2.0
"""Runs the package: `python -m spdkfac.page`, or `python PATH/page`, which needs no torch."""

import sys
from pathlib import Path

if __package__:
    from .command import main
else:  # the folder itself is run: it stands for the package `page`, spdkfac stays out of it
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from page.command import main

sys.exit(main())
