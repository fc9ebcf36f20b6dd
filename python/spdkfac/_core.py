# SPDX-License-Identifier: Apache-2.0
"""Becomes the compiled part for the torch of this environment; _core.pyi says what is in it."""

import sys

from ._torch import load

sys.modules[__name__] = load()
