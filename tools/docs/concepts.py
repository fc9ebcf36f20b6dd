# SPDX-License-Identifier: Apache-2.0
"""Pictures of docs/concepts.md: the factors of a layer, a step of a rank, fusion and placement."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from svg import BLUE, CATEGORIES, GREY, VERMILION, Picture, Theme, ink_on

A_COLOUR, G_COLOUR = BLUE, VERMILION


def factors(theme: Theme) -> str:
    """From what goes through a layer to its update."""
    picture = Picture(theme, 372, "The two factors of a layer, and the update that they make")
    blue, red = theme.colour(A_COLOUR), theme.colour(G_COLOUR)
    picture.rect(320, 34, 160, 76, theme.tint, radius=6, stroke=theme.line)
    picture.text(400, 68, "layer", bold=True, anchor="middle")
    picture.text(400, 90, "weight W", fill=theme.soft, anchor="middle")
    picture.line([(150, 58), (316, 58)], blue, 2, arrow=True)
    picture.text(232, 48, "input a", fill=blue, bold=True, anchor="middle")
    picture.line([(484, 58), (650, 58)], theme.line, 2, arrow=True)
    picture.text(567, 48, "output", fill=theme.soft, anchor="middle")
    picture.line([(650, 90), (484, 90)], red, 2, arrow=True)
    picture.text(577, 109, "gradient g", fill=red, bold=True, anchor="start")
    picture.text(12, 63, "forward pass", size=13, fill=theme.soft)
    picture.text(788, 95, "backward pass", size=13, fill=theme.soft, anchor="end")
    picture.line([(232, 58), (232, 138)], blue, 2, arrow=True)
    picture.line([(567, 92), (567, 138)], red, 2, arrow=True)
    matrix(picture, 192, 144, 80, 80, "A", blue)
    matrix(picture, 539, 144, 56, 56, "G", red)
    picture.text(182, 180, "average of a·aᵀ", anchor="end")
    picture.text(182, 200, "inputs × inputs", size=13, fill=theme.soft, anchor="end")
    picture.text(606, 168, "average of g·gᵀ")
    picture.text(606, 188, "outputs × outputs", size=13, fill=theme.soft)
    picture.text(98, 300, "update V", bold=True, anchor="end")
    picture.text(117, 300, "=", anchor="middle", size=18)
    matrix(picture, 140, 266, 56, 56, "G⁻¹", red)
    picture.text(221, 300, "·", anchor="middle", size=22)
    matrix(picture, 246, 266, 80, 56, "∇W", theme.soft)
    picture.text(351, 300, "·", anchor="middle", size=22)
    matrix(picture, 376, 254, 80, 80, "A⁻¹", blue)
    picture.text(492, 284, "K-FAC multiplies the gradient of a layer")
    picture.text(492, 304, "with two small inverses instead of one")
    picture.text(492, 324, "of all weights by all weights.")
    picture.text(140, 356, "Damping is added to A and G before they are inverted.", size=13, fill=theme.soft)
    return picture.svg()


def matrix(picture: Picture, x: float, y: float, width: float, height: float, words: str, colour: str) -> None:
    picture.rect(x, y, width, height, colour, radius=3, opacity=0.16, stroke=colour)
    picture.text(x + width / 2, y + height / 2 + 6, words, size=17, bold=True, fill=colour, anchor="middle")


def box(picture: Picture, x: float, y: float, width: float, height: float, colour: str, words: str,
        size: float = 13) -> None:
    """A coloured box with words in it; boxes that follow each other do not touch."""
    fill = picture.theme.colour(colour)
    picture.rect(x, y, width - 1.5, height, fill, radius=2)
    picture.text(x + width / 2 - 0.75, y + height / 2 + 5, words, size=size, bold=True, fill=ink_on(fill),
                 anchor="middle")


def step(theme: Theme) -> str:
    """A step of a rank with three layers."""
    picture = Picture(theme, 124, "A step of one rank: what it computes, and what travels meanwhile")
    left, unit = 84, 17.1
    # Places are in units of time; a message leaves when its last tensor is there.
    compute = [("F₁", "ff_bp", 0, 2), ("A₁", "factor_comp", 2, 1.6), ("F₂", "ff_bp", 3.6, 2),
               ("A₂", "factor_comp", 5.6, 1.6), ("F₃", "ff_bp", 7.2, 2), ("A₃", "factor_comp", 9.2, 1.6),
               ("B₃", "ff_bp", 10.8, 2.6), ("G₃", "factor_comp", 13.4, 1.6), ("B₂", "ff_bp", 15, 2.6),
               ("G₂", "factor_comp", 17.6, 1.6), ("B₁", "ff_bp", 19.2, 2.6), ("G₁", "factor_comp", 21.8, 1.6),
               ("invert own", "inverse_comp", 28, 6), ("precondition", "precondition", 35.7, 6.1)]
    channel = [("A₁", "factor_comm", 3.6, 3), ("A₂ A₃", "factor_comm", 10.8, 4.2), ("∇₃", "grad_comm", 15, 2),
               ("G₃", "factor_comm", 17, 2.4), ("∇₂ ∇₁", "grad_comm", 21.8, 2.8), ("G₂ G₁", "factor_comm", 24.6, 3.4),
               ("A₁⁻¹", "inverse_comm", 30.6, 2.5), ("G₃⁻¹", "inverse_comm", 33.2, 2.5)]
    for name, y, tasks in (("computes", 44, compute), ("sends", 84, channel)):
        picture.text(left - 12, y + 20, name, size=13, fill=theme.soft, anchor="end")
        picture.rect(left, y, 42 * unit - 4, 32, theme.tint)
        for words, part, start, length in tasks:
            box(picture, left + start * unit, y, length * unit, 32, CATEGORIES[part][1], words,
                size=13 if length < 6.1 else 12)
    for words, start, end in (("forward pass", 0, 10.8), ("backward pass", 10.8, 23.4), ("step()", 23.4, 42)):
        picture.line([(left + start * unit + 2, 34), (left + end * unit - 5, 34)], theme.line, 1.5)
        picture.text(left + (start + end) / 2 * unit, 26, words, size=13, fill=theme.soft, anchor="middle")
    return picture.svg()


Spans = list[tuple[str, float, float]]  # the tensors of a message, its start and its end
ALPHA, BETA, READY = 2.0, 1.0, (0.0, 1.0, 3.0)


def sent(messages: Sequence[Sequence[int]]) -> Spans:
    """When messages of these tensors travel: one at a time, each when its last tensor is ready."""
    found: Spans = []
    free = 0.0
    for message in messages:
        start = max(free, READY[message[-1]])
        free = start + ALPHA + BETA * len(message)
        found.append((" + ".join(str(tensor + 1) for tensor in message), start, free))
    return found


def fusion(theme: Theme) -> str:
    """Three tensors that are ready at different times, and three ways to send them."""
    picture = Picture(theme, 268, "Three tensors as three messages, as two by the greedy rule, as two by the exact one")
    left, unit = 220, 54.0
    picture.text(12, 22, "Three factors, ready at 0, 1 and 3. A message costs 2, and 1 for each factor in it.",
                 bold=True)
    for tick in range(10):
        picture.line([(left + tick * unit, 64), (left + tick * unit, 226)], theme.grid)
        picture.text(left + tick * unit, 246, str(tick), size=13, fill=theme.soft, anchor="middle")
    picture.text(left - 20, 56, "ready", size=13, fill=theme.soft, anchor="end")
    for tensor, ready in enumerate(READY):
        x = left + ready * unit
        picture.line([(x, 66), (x, 226)], theme.soft, 1.2, dashed=True)
        picture.text(x, 56, str(tensor + 1), size=13, fill=theme.soft, anchor="middle")
    rows = (("none", "each alone", [[0], [1], [2]]), ("greedy", "joins what is ready in time", [[0, 1], [2]]),
            ("optimal", "waits where that pays", [[0], [1, 2]]))
    for row, (name, words, messages) in enumerate(rows):
        y = 78 + row * 52
        picture.text(12, y + 15, name, bold=True)
        picture.text(12, y + 33, words, size=13, fill=theme.soft)
        for label, start, end in sent(messages):
            middle = left + (start + ALPHA) * unit
            box(picture, left + start * unit, y, ALPHA * unit, 34, GREY, "start")
            box(picture, middle, y, (end - start - ALPHA) * unit, 34, BLUE, label)
        picture.text(left + end * unit + 8, y + 22, f"ends at {end:g}", bold=True)
    return picture.svg()


def placement(theme: Theme) -> str:
    """Algorithm 1 on three ranks, as docs/planning.md works it out by hand."""
    picture = Picture(theme, 232, "Which rank inverts which factor: small factors on every rank, large ones on one")
    left, unit = 84, 4.2
    shared = [4, 4, 3, 5]
    owned = {0: [9], 1: [8], 2: [7, 6]}
    picture.text(12, 22, "Eight factors on three ranks; inverting d rows takes d² here.", bold=True)
    for rank, mine in owned.items():
        x, y = float(left), 44 + rank * 46
        picture.text(left - 12, y + 22, f"rank {rank}", anchor="end")
        for rows, colour in [(rows, GREY) for rows in shared] + [(rows, BLUE) for rows in mine]:
            width = rows * rows * unit
            box(picture, x, y, width, 34, colour, str(rows))
            x += width
        picture.text(x + 8, y + 22, f"{sum(rows * rows for rows in shared + mine)}", bold=True)
    for y, colour, words in (
            (190, GREY, "small: every rank inverts it, which is quicker than receiving it"),
            (212, BLUE, "large: the next largest goes to the rank with the fewest rows, which sends the inverse")):
        picture.rect(left, y, 13, 13, theme.colour(colour), radius=2)
        picture.text(left + 20, y + 11.5, words, size=13)
    return picture.svg()


PICTURES: dict[str, Callable[[Theme], str]] = {
    "factors": factors, "step": step, "fusion": fusion, "placement": placement}
