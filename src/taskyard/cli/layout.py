"""Rows in columns: aligned by what characters take on a screen, painted, and if wanted cut to a terminal's width.

A pipe gets everything, however wide. Cells are plain text: whoever fills them made them harmless.
"""

import os
import unicodedata
from collections.abc import Collection, Sequence
from typing import Final, TextIO

from taskyard.cli import paint

GAP: Final = "  "
#: A column is not made narrower than this; a terminal that is too narrow wraps.
NARROW: Final = 8


def table(
    rows: Sequence[Sequence[str]],
    stream: TextIO,
    indent: str = "",
    *,
    titled: bool = False,
    fit: bool = False,
    whole: Collection[int] = (),
) -> list[str]:
    """Align rows in columns; with titles, the first row has them.

    To `fit` is for lists that are scanned; the columns in `whole` are never cut, the others give way.
    Whatever is read, or copied from, stays whole: a terminal may wrap it.
    """
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    room = columns_of(stream) if fit else None
    if room is not None:
        widths = fitted(widths, room - len(indent), whole)
        rows = [[cut(cell, most) for cell, most in zip(row, widths, strict=True)] for row in rows]
    if not paint.wanted(stream):
        return [indent + _aligned(row, row, widths) for row in rows]
    head = [indent + paint.bold(_aligned(rows[0], rows[0], widths))] if titled else []
    states = {at for at, title in enumerate(rows[0]) if title == "STATE"} if titled else set()
    return head + [indent + _aligned(row, _painted(row, states), widths) for row in rows[len(head) :]]


def columns_of(stream: TextIO) -> int | None:
    """Tell how wide a terminal is; None for what is no terminal."""
    if not stream.isatty():
        return None
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told):
        return int(told)
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None


def width(text: str) -> int:
    """Count the columns that text takes: wide characters take two, and marks that join the one before none."""
    if text.isascii():
        return len(text)
    return sum(_width(character) for character in text)


def fitted(widths: Sequence[int], room: int, whole: Collection[int] = ()) -> list[int]:
    """Make the widest columns narrower until a line fits, none below what can still be read, nor those in `whole`."""
    found = list(widths)
    over = sum(found) + len(GAP) * (len(found) - 1) - room
    while over > 0 and (others := [at for at in range(len(found)) if at not in whole and found[at] > NARROW]):
        widest = max(others, key=lambda at: found[at])
        second = max([found[at] for at in others if at != widest] or [0])
        cut = min(over, found[widest] - max(NARROW, min(second, found[widest] - 1)))
        found[widest] -= cut
        over -= cut
    return found


def cut(text: str, room: int) -> str:
    """Shorten text to some columns; dots say that it was."""
    if width(text) <= room:
        return text
    kept = 0
    for at, character in enumerate(text):
        kept += _width(character)
        if kept > room - 3:
            return f"{text[:at]}..."
    return text


def _aligned(plain: Sequence[str], shown: Sequence[str], widths: Sequence[int]) -> str:
    """Put the shown cells side by side, each as wide as its column: paint takes no room."""
    padded = (one + " " * (most - width(cell)) for cell, one, most in zip(plain, shown, widths, strict=True))
    return GAP.join(padded).rstrip()


def _painted(row: Sequence[str], states: Collection[int]) -> list[str]:
    """Paint the states in a row: those in their columns, or what stands behind the word."""
    at = states or ({1} if row[0] == "state" else ())
    return [paint.state(cell) if place in at else cell for place, cell in enumerate(row)]


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
