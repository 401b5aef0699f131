"""How things are printed on stdout: a table for people, JSON for programs, names for scripts.

All text is made harmless in a table and in names; JSON is written in ASCII, so that nothing in it acts on a terminal.
A table has colours and fits the width where people look at it; a pipe gets every cell whole.
"""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from taskyard.cli import layout, nearest, reports, text
from taskyard.cli.exits import Exit
from taskyard.cli.options import Decorator, bundle, choice

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

#: How things can be printed.
FORMS: Final = ("table", "json", "jsonl", "name")

Thing = TypeVar("Thing", bound="DataclassInstance")
Column = tuple[str, Callable[[Any], object]]


class Id(str):
    """The id of a graph or a task: a table shows its end, which is enough to name it."""

    __slots__ = ()


#: How many digits of an id a table shows; more, if two ids of a table end in the same.
ENDING_DIGITS: Final = 6
#: The columns that name graphs and tasks: a narrow terminal does not cut them.
_NAMING: Final = frozenset({"id", "task", "graph", "subject", "held by", "waiting"})


class Listing(NamedTuple):
    """How a list is printed."""

    output: str = "table"
    columns: str | None = None

    def chosen(self, columns: Sequence[Column]) -> list[Column]:
        """Give the columns that are wanted; all, unless told."""
        known = dict(columns)
        wanted = [one.strip().lower() for one in self.columns.split(",")] if self.columns else list(known)
        for one in wanted:
            if one not in known:
                raise click.UsageError(nearest.unknown("column", one, known))
        return [(one, known[one]) for one in wanted]


TABLE: Final = Listing()


def output_option(default: str) -> Decorator:
    """Make the option that chooses how a command prints its result."""
    return choice("--output", "-o", words=FORMS, default=default, help="Output format.")


listing_options = bundle(
    "listing",
    Listing,
    output_option("table"),
    click.option("--columns", metavar="COLUMNS", help="Columns of the table, such as id,state."),
)


def give_all(
    things: Iterable[Thing],
    listing: Listing,
    columns: Sequence[Column],
    name: Callable[[Thing], str],
    *,
    fit: bool = True,
) -> Exit:
    """Print many things; what a server gives page by page is not gathered before it has to be.

    Tables fit a terminal, unless they are there to be read as a whole.
    """
    chosen = listing.chosen(columns)
    writers: dict[str, Callable[[], None]] = {
        "table": lambda: _give_table(lines_of(things, chosen, fit=fit)),
        "json": lambda: _give_json([asdict(thing) for thing in things]),
        "jsonl": lambda: _give_at_once(_json(asdict(thing)) for thing in things),
        "name": lambda: _give_at_once(text.harmless(name(thing)) for thing in things),
    }
    return _arrived(writers[listing.output])


def give_one(shape: dict[str, Any], form: str, lines: Callable[[], Iterable[str]], name: str) -> Exit:
    """Print one thing; `lines` tells it to people."""
    writers: dict[str, Callable[[], None]] = {
        "table": lambda: _give_lines(lines()),
        "json": lambda: _give_json(shape),
        "jsonl": lambda: reports.answer(_json(shape)),
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


def moment_ms(at_ms: int) -> str:
    """Spell a moment with its milliseconds, without a space."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{at_ms % 1000:03}Z"


def counted(counts: dict[str, int]) -> str:
    """Put counts in a line: `3 successful, 1 failed`."""
    return ", ".join(f"{count} {text.harmless(state)}" for state, count in counts.items() if count) or "none"


def cell(value: object) -> str:
    """Put something into a cell: one harmless line."""
    if value is None or value == "":
        return "-"
    return text.harmless(("no", "yes")[value] if isinstance(value, bool) else str(value))


def pairs(shape: Any, columns: Sequence[Column]) -> list[str]:
    """Tell of one thing, a line for each column."""
    return layout.table([[title, cell(value(shape))] for title, value in columns], sys.stdout)


def lines_of(things: Iterable[Any], columns: Sequence[Column], *, fit: bool = True) -> list[str]:
    """Lay things out as a table, its titles above; nothing for no things."""
    found = [[value(thing) for _, value in columns] for thing in things]
    if not found:
        return []
    digits = _digits_shown(one for row in found for one in row if isinstance(one, Id))
    rows = [[cell(one[-digits:] if isinstance(one, Id) else one) for one in row] for row in found]
    titles = [title.upper() for title, _ in columns]
    whole = {at for at, (title, _) in enumerate(columns) if title in _NAMING}
    return layout.table([titles, *rows], sys.stdout, titled=True, fit=fit, whole=whole)


def _digits_shown(ids: Iterable[Id]) -> int:
    """Tell how many digits tell the ids of one table apart."""
    every = set(ids)
    longest = max(map(len, every), default=ENDING_DIGITS)
    return next(
        (digits for digits in range(ENDING_DIGITS, longest) if len({one[-digits:] for one in every}) == len(every)),
        longest,
    )


def _give_table(lines: list[str]) -> None:
    _give_lines(lines)
    if not lines:
        reports.talk("nothing to show")


def _give_json(shape: object) -> None:
    reports.answer(_json(shape, indent=2))


def _json(shape: object, indent: int | None = None) -> str:
    import json  # noqa: PLC0415 - a table does not need it

    return json.dumps(shape, indent=indent)


def _give_lines(lines: Iterable[str]) -> None:
    for line in lines:
        reports.answer(line)


def _give_at_once(lines: Iterable[str]) -> None:
    """Write each line when it is there: whoever reads them does not wait for the next page."""
    for line in lines:
        reports.answer(line)
        sys.stdout.flush()


def _arrived(write: Callable[[], None]) -> Exit:
    return Exit.OK if reports.delivered(write) else Exit.ERROR
