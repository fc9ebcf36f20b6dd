# SPDX-License-Identifier: Apache-2.0
"""Runs the folder: `python benchmarks/target --help`."""

import sys

from command import main

if __name__ == "__main__":  # worker processes import this file, too
    sys.exit(main())
