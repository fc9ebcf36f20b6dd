# SPDX-License-Identifier: Apache-2.0
"""One colour for each category and each algorithm, the same on the whole page.

The colours are those of Okabe and Ito, which people with any kind of colour vision tell apart; the
two lightest are darkened to be seen on white.
"""

from __future__ import annotations

BLUE, GREEN, ORANGE = "#0072b2", "#009e73", "#d98e04"
VERMILION, PURPLE, SKY, GREY = "#d55e00", "#cc79a7", "#4aa5dc", "#8691a1"

# The parts of an iteration in the paper's order, as in files: name and colour.
CATEGORIES: dict[str, tuple[str, str]] = {
    "ff_bp": ("FF&BP", GREY),
    "grad_comm": ("GradComm", SKY),
    "factor_comp": ("FactorComp", GREEN),
    "factor_comm": ("FactorComm", ORANGE),
    "inverse_comp": ("InverseComp", BLUE),
    "inverse_comm": ("InverseComm", VERMILION),
    "precondition": ("Precondition", PURPLE),
}

# Of memory: a factor has the colour of computing factors, an inverse that of inverting.
MEMORY_PARTS: dict[str, tuple[str, str]] = {
    "factors": ("factors", GREEN), "inverses": ("inverses", BLUE), "buffers": ("buffers", GREY)}
SIDES: dict[str, tuple[str, str]] = {
    "a": ("A, from a layer's inputs", BLUE), "g": ("G, from a layer's gradients", VERMILION)}

KNOWN: dict[str, str] = {
    "sgd": GREY, "s-sgd": GREY,
    "d-kfac": VERMILION, "kfac": BLUE, "k-fac": BLUE,
    "mpd-kfac": ORANGE,
    "spd-kfac": BLUE, "sp-otf": BLUE,
    "auto": GREEN, "adam": ORANGE, "adamw": ORANGE,
    "pipe": SKY, "lbp": PURPLE, "non-dist": VERMILION, "seq-dist": ORANGE, "lpt": GREEN,
    "naive": VERMILION, "lw-none": ORANGE, "lw-threshold": SKY,
    "optimal-fusion": "#7a5cc0", "owner-reduce": "#a3567f", "owner-precondition": "#7f6a2a",
    "owner-blocks": "#5b8a3c",
}
OTHERS = (GREEN, PURPLE, SKY, ORANGE, VERMILION, BLUE)


def run_colours(names: list[tuple[str, str]]) -> list[str]:
    """Colours of runs, each an algorithm and its label, that are drawn in one chart.

    Variants of one algorithm have the colours of their labels; no two are alike while there are
    colours left.
    """
    algorithms = [algorithm for algorithm, _ in names]
    found: list[str] = []
    for algorithm, label in names:
        colour = algorithm_colour(label if algorithms.count(algorithm) > 1 else algorithm)
        left = [other for other in (*OTHERS, GREY) if other not in found]
        found.append(left[0] if colour in found and left else colour)
    return found


def algorithm_colour(name: str) -> str:
    """The colour of an algorithm, or of an optimizer by its label; any name has one."""
    name = name.lower()
    return KNOWN.get(name) or OTHERS[sum(map(ord, name)) % len(OTHERS)]
