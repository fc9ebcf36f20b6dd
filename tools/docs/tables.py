# SPDX-License-Identifier: Apache-2.0
"""Tables of README.md and docs that are made from records and from what the program simulates."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import steps
import training
from svg import ROOT

MARKED = re.compile(r"(<!-- made: ([a-z-]+) -->\n).*?(<!-- made end -->)", re.S)
PAGES = (ROOT / "README.md", ROOT / "docs/benchmarking.md")
MODEL, CLUSTER = "resnet50", "paper-64x2080ti"
PLANNED = {"sgd": "SGD: gradients alone", "d-kfac": "D-KFAC: all ranks invert everything",
           "mpd-kfac": "MPD-KFAC: inverses dealt out in turn",
           "spd-kfac": "SPD-KFAC: the paper's pipeline and balance",
           "auto": "auto: what the planner finds"}
INTERVALS = (("1/1", ()), ("10/100", ("--factor-interval", "10", "--inverse-interval", "100")))


def table(head: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """Markdown; the first `words` columns are text, the others numbers."""
    rule = ["---"] * words + ["--:"] * (len(head) - words)
    lines = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in (head, *rows)]
    return "\n".join([lines[0], f"|{'|'.join(rule)}|", *lines[1:]]) + "\n"


def step_cost() -> str:
    head = ["", "SGD ms", "spdkfac ms", "× SGD", "kfac-pytorch ms", "× SGD"]
    rows = []
    for group in steps.record()["groups"]:
        interval = f"{group['factor_interval']}/{group['inverse_interval']}"
        for row in group["rows"]:
            ms = row["ms"]
            rows.append([f"{row['model']}, {interval}", f"{ms['sgd']:g}", f"{ms['spdkfac']:g}",
                         f"{ms['spdkfac'] / ms['sgd']:.2f}", f"{ms['kfac-pytorch']:g}",
                         f"{ms['kfac-pytorch'] / ms['sgd']:.2f}"])
    return table(head, rows)


def demonstration() -> str:
    head = ["", "optimizer", "setting", "reached", "steps", "seconds", "× AdamW's steps", "× AdamW's seconds"]
    rows = []
    for task in training.record()["target"]:
        for found in task["optimizers"]:
            reached = found["reached"] > 0
            rows.append([f"`{task['task']}`", training.NAMES[found["label"]], found["settings"],
                         f"{found['reached']} of {found['seeds']}",
                         f"{found['steps']['median']:g}" if reached else "–",
                         f"{found['seconds']['median']:.3g}" if reached else "–",
                         f"{found['steps_ratio']:.2f}" if reached else "–",
                         f"{found['seconds_ratio']:.2f}" if reached else "–"])
    return table(head, rows, words=4)


def planner(program: Path) -> str:
    found: dict[str, list[str]] = {name: [] for name in PLANNED}
    for _, flags in INTERVALS:
        names = [word for name in PLANNED for word in ("--algorithm", name)]
        done = subprocess.run([program, "simulate", "--json", "--model", MODEL, "--cluster", CLUSTER, *names, *flags],
                              check=True, capture_output=True, text=True)
        times = {each["algorithm"]: each["iteration_seconds"] for each in json.loads(done.stdout)}
        for name, cells in found.items():
            cells += [f"{1e3 * times[name]:.0f}", f"{times['d-kfac'] / times[name]:.2f}"]
    head = ["algorithm", *(word for name, _ in INTERVALS for word in (f"{name}: ms", "× D-KFAC"))]
    return table(head, [[PLANNED[name], *cells] for name, cells in found.items()])


def pages(program: Path) -> dict[Path, str]:
    """The pages with their tables as they should be."""
    made = {"step-cost": step_cost, "demonstration": demonstration, "planner": lambda: planner(program)}

    def filled(match: re.Match[str]) -> str:
        if match[2] not in made:
            raise SystemExit(f"tools/docs: there is no table {match[2]}; its name is one of {', '.join(made)}")
        return f"{match[1]}\n{made[match[2]]()}\n{match[3]}"
    return {page: MARKED.sub(filled, page.read_text(encoding="utf-8")) for page in PAGES}
