"""How things are printed on stdout: a table for people, JSON for programs, names for scripts.

All text is made harmless in a table and in names; JSON is written in ASCII, so that nothing in it acts on a terminal.
"""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from cyclopts import Parameter

from taskyard.cli import reports, text
from taskyard.cli.exits import Exit

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Form = Annotated[
    Literal["table", "json", "jsonl", "name"],
    Parameter(name=["--output", "-o"], help="How it is printed on stdout."),
]
#: The longest a cell gets in a table; JSON has all of it.
CELL_MAX = 60

Thing = TypeVar("Thing", bound="DataclassInstance")
Column = tuple[str, Callable[[Any], object]]


def give_all(things: Iterable[Thing], form: str, columns: Sequence[Column], name: Callable[[Thing], str]) -> Exit:
    """Print many things; what a server gives page by page is not gathered before it has to be."""
    writers: dict[str, Callable[[], None]] = {
        "table": lambda: _give_table(things, columns),
        "json": lambda: _give_json([asdict(thing) for thing in things]),
        "jsonl": lambda: _give_lines(json.dumps(asdict(thing)) for thing in things),
        "name": lambda: _give_lines(text.harmless(name(thing)) for thing in things),
    }
    return _arrived(writers[form])


def give_one(shape: dict[str, Any], form: str, lines: Callable[[], Iterable[str]], name: str) -> Exit:
    """Print one thing; `lines` tells it to people."""
    writers: dict[str, Callable[[], None]] = {
        "table": lambda: _give_lines(lines()),
        "json": lambda: _give_json(shape),
        "jsonl": lambda: reports.answer(json.dumps(shape)),
        "name": lambda: reports.answer(text.harmless(name)),
    }
    return _arrived(writers[form])


def age(at_ms: int) -> str:
    """Say how long ago something was."""
    passed = max(0, round(time.time() - at_ms / 1000))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if passed >= 2 * size:
            return f"{passed // size} {unit}"
    return f"{passed} s"


def moment(at_ms: int) -> str:
    """Spell a moment."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def counted(counts: dict[str, int]) -> str:
    """Put counts in a line: `3 successful, 1 failed`."""
    return ", ".join(f"{count} {text.harmless(state)}" for state, count in counts.items() if count) or "none"


def table(rows: Sequence[Sequence[str]], indent: str = "") -> list[str]:
    """Align rows in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return [indent + line for line in padded]


def cell(value: object) -> str:
    """Put something into a cell: one harmless line of a bounded length."""
    if value is None or value == "":
        return "-"
    plain = text.harmless(("no", "yes")[value] if isinstance(value, bool) else str(value))
    return plain if len(plain) <= CELL_MAX else f"{plain[: CELL_MAX - 3]}..."


def _give_table(things: Iterable[Thing], columns: Sequence[Column]) -> None:
    rows = [[cell(value(thing)) for _, value in columns] for thing in things]
    if rows:
        _give_lines(table([[title.upper() for title, _ in columns], *rows]))
    else:
        reports.talk("nothing to show")


def _give_json(shape: object) -> None:
    reports.answer(json.dumps(shape, indent=2))


def _give_lines(lines: Iterable[str]) -> None:
    for line in lines:
        reports.answer(line)


def _arrived(write: Callable[[], None]) -> Exit:
    return Exit.OK if reports.delivered(write) else Exit.ERROR
