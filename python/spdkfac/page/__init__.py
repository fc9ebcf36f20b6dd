# SPDX-License-Identifier: Apache-2.0
"""Draws one HTML page from records of experiments (docs/records.md). Needs plotly and numpy."""
