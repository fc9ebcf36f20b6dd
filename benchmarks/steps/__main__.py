# SPDX-License-Identifier: Apache-2.0
"""Runs the folder: `python benchmarks/steps --help`."""

import sys

from command import main

if __name__ == "__main__":
    sys.exit(main())
