# SPDX-License-Identifier: Apache-2.0
"""What the user did wrong, in one line; and what is installed."""

from __future__ import annotations

import importlib.util


class Mistake(Exception):
    """Its text reads `where: what (value); what to do`."""


def installed(module: str) -> bool:
    """Without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:  # its package is not there
        return False
