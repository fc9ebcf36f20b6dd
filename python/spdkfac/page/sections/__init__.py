# SPDX-License-Identifier: Apache-2.0
"""The sections of the page, one module each, in the order to show them."""

from __future__ import annotations

from ..charts import Charts
from ..records import Record
from ..section import Section
from . import (ablation, accuracy, breakdown, convergence, fits, iteration, memory, models, pipelining,
               placement, scaling, step, target, timeline)

ORDER = (iteration, timeline, breakdown, pipelining, placement, ablation, scaling, fits, models,
         memory, step, accuracy, convergence, target)


def make(records: list[Record], charts: Charts) -> list[Section]:
    """Those sections for which there are records."""
    made = (module.make(records, charts) for module in ORDER)
    return [section for section in made if section is not None]
