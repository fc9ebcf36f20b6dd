# SPDX-License-Identifier: Apache-2.0
"""Pages of experiments and predictions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from . import _plan
from .errors import ConfigError
from .planning import Comparison, Prediction

Result = Prediction | Comparison | Mapping[str, Any] | str | Path


class Report:
    """One HTML page that needs nothing else, and the records that it was made from."""

    def __init__(self, html: str, records: list[dict[str, Any]]) -> None:
        self.html = html
        self.records = records

    def to_json(self) -> list[dict[str, Any]]:
        """The records (`spdkfac.record/1`, docs/records.md)."""
        return self.records

    @classmethod
    def from_json(cls, records: Iterable[Mapping[str, Any]]) -> Report:
        return report(*records)

    def save(self, path: str | Path) -> None:
        Path(path).write_text(self.html, encoding="utf-8")

    def _repr_html_(self) -> str:
        return (f'<iframe srcdoc="{escape(self.html)}" width="100%" height="700" '
                'style="border:1px solid #ccc"></iframe>')


def report(*results: Result, title: str = "SPD-KFAC report") -> Report:
    """Draws predictions and records of `spdkfac bench … --out` as one page. Needs plotly.

    A result is a Prediction, a Comparison, a record or the path of one.
    """
    predictions: list[_plan.Prediction] = []
    records: list[dict[str, Any]] = []
    for result in results:
        if isinstance(result, Prediction):
            predictions.append(result.core)
        elif isinstance(result, Comparison):
            predictions += [one.core for one in result]
        elif isinstance(result, Mapping):
            records.append(dict(result))
        else:
            records.append(_read(Path(result)))
    together: dict[tuple[int, int], list[_plan.Prediction]] = {}
    for one in predictions:
        together.setdefault((one.factor_interval, one.inverse_interval), []).append(one)
    records += [json.loads(_plan.record_of(group)) for group in together.values()]
    if not records:
        raise ConfigError("report: nothing to draw; pass predictions or records")
    return Report(_draw(records, title), records)


def _read(path: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); pass a file that spdkfac bench wrote") from error
    return record


def _draw(records: list[dict[str, Any]], title: str) -> str:
    from .page import records as reader

    try:
        found = [reader.parse(json.dumps(record), f"record {number}")
                 for number, record in enumerate(records, 1)]
    except reader.RecordError as error:
        raise ConfigError(f"report: {error}") from error
    try:
        from .page import document  # loads plotly
    except ModuleNotFoundError as error:
        raise ConfigError(f"report: the Python package {error.name} is missing; "
                          "pip install spdkfac[report]") from error
    return document.make(found, title)
