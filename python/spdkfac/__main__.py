# SPDX-License-Identifier: Apache-2.0
"""`python -m spdkfac` is the command `spdkfac`."""

from .command import main

main()
