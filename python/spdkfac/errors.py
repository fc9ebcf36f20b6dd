# SPDX-License-Identifier: Apache-2.0
"""What goes wrong; docs/errors.md lists the texts."""

from __future__ import annotations


class Error(RuntimeError):
    """Base class of all errors of spdkfac."""


class ConfigError(Error, ValueError):
    """A mistake in options, files or usage."""


class CommError(Error):
    """Another rank died, disagrees or does not answer in time."""


class NumericalError(Error):
    """A matrix that cannot be inverted, or a loss that diverged."""


for _error in (Error, ConfigError, CommError, NumericalError):
    _error.__module__ = "spdkfac"  # where users know them from
