# SPDX-License-Identifier: Apache-2.0
"""What the user did wrong, in one line."""


class Mistake(Exception):
    """Its text reads `where: what (value); what to do`."""
