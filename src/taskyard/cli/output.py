"""How things are printed on stdout: a table for people, JSON for programs, names for scripts.

All text is made harmless in a table and in names; JSON is written in ASCII, so that nothing in it acts on a terminal.
A table has colours and fits the width where people look at it; a pipe gets every cell whole.
"""

import os
import re
import sys
import time
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO, TypeVar

import click

from taskyard.cli.exit_codes import Exit
from taskyard.wire.close_match import unknown_name

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from taskyard.wire.documents import Fault


# Colours: on a terminal only, unless NO_COLOR, FORCE_COLOR or TERM=dumb say otherwise.


_WORD: Final = re.compile("[a-z]+")
_RESET: Final = "\x1b[0m"
_BOLD: Final = "\x1b[1m"
_GREEN, _YELLOW, _RED, _CYAN, _DIM = "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[36m", "\x1b[2m"
#: How the states of graphs, tasks and bots look.
_STATES: Final = {
    "successful": _GREEN, "finished": _GREEN, "alive": _GREEN,
    "running": _CYAN, "stopping": _CYAN, "canceling": _CYAN,
    "pending": _YELLOW, "waiting": _YELLOW, "draining": _YELLOW, "maintenance": _YELLOW,
    "failed": _RED, "error": _RED, "blocked": _RED, "dead": _RED, "quarantined": _RED,
    "canceled": _DIM, "skipped": _DIM, "unscheduled": _DIM,
}  # fmt: skip


def wants_colour(stream: TextIO) -> bool:
    """Tell whether a stream should have colours."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def can_draw(stream: TextIO) -> bool:
    """Tell whether a stream is a terminal whose owner wants to see drawings."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def bold(line: str) -> str:
    """Make a line on stdout bold, if it should be."""
    return f"{_BOLD}{line}{_RESET}" if wants_colour(sys.stdout) else line


def colour_state(cell: str) -> str:
    """Give what begins with the word for a state its colour."""
    word = _WORD.match(cell)
    colour = _STATES.get(word[0], "") if word else ""
    return f"{colour}{cell}{_RESET}" if colour else cell


# Tables: aligned by the width of characters on a screen, cut to the width of a terminal. Cells must be harmless text.


GAP: Final = "  "
#: A column is not made narrower than this; a terminal that is too narrow wraps.
NARROW: Final = 8


def format_table(
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
    if not wants_colour(stream):
        return [indent + _aligned(row, row, widths) for row in rows]
    head = [indent + bold(_aligned(rows[0], rows[0], widths))] if titled else []
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
    return [colour_state(cell) if place in at else cell for place, cell in enumerate(row)]


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


# Text for a terminal. What tasks print and what documents contain is hostile: it goes through `harmless`.


#: A failure's last lines, enough to see it and few enough to see the next one.
TAIL_LINES_MAX = 10
#: One line of output on a few lines of a terminal; a minified file must not fill the screen.
LINE_LENGTH_MAX = 400
#: A line that does not end is shown in pieces of this length.
LINE_BYTES_MAX = 8_192

#: Sequences that a terminal obeys: OSC and its like with their text (in one line: an end that is missing must not hide
#: what follows), CSI, then any other escape.
_ESCAPES = re.compile(
    "(?:\x1b[\\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)?"
    "|(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]?"
    "|\x1b[ -/]*[0-~]?"
)
#: Controls, invisible marks that turn the reading order, surrogates, line separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def harmless(text: str) -> str:
    """Give one line of text that no terminal obeys: escapes are dropped, other hidden characters spelled out."""
    plain = _ESCAPES.sub("", text).replace("\t", "    ")
    return plain if plain.isascii() and plain.isprintable() else "".join(map(_visible, plain))


def last_lines(tail: str, lines_max: int = TAIL_LINES_MAX) -> list[str]:
    """Give the last lines that a task printed, each harmless and of a bounded length."""
    # A lone carriage return starts the line again: a terminal would show only what came last.
    plain = re.sub(r"\r+\n", "\n", _ESCAPES.sub("", tail))
    lines = [line.rpartition("\r")[2] for line in plain.split("\n")]
    shown = [_cut(harmless(line.rstrip())) for line in lines if line.strip()]
    return shown[-lines_max:]


def shown_line(line: bytes) -> str:
    """Give a line that a task printed as a terminal may show it: what came last in it, and nothing to obey."""
    # A lone carriage return starts the line again: a terminal would show only what came last.
    return harmless(line.decode(errors="replace").rstrip("\r").rpartition("\r")[2])


class Lines:
    """Cuts what comes in pieces into lines of a bounded length."""

    def __init__(self, start: int = 0) -> None:
        """Begin with a byte: the first, unless told."""
        self.at = start  # where the line begins that has no end yet
        self._rest = b""

    def of(self, piece: bytes) -> list[bytes]:
        """Give the lines that a piece completes."""
        return [line for _, line in self.placed(piece)]

    def placed(self, piece: bytes) -> list[tuple[int, bytes]]:
        """Give the lines that a piece completes, each with the byte that it begins with."""
        *lines, rest = (self._rest + piece).split(b"\n")
        found: list[tuple[int, bytes]] = []
        for line in lines:
            found.append((self.at, line))
            self.at += len(line) + 1
        while len(rest) > LINE_BYTES_MAX:
            found.append((self.at, rest[:LINE_BYTES_MAX]))
            rest = rest[LINE_BYTES_MAX:]
            self.at += LINE_BYTES_MAX
        self._rest = rest
        return found

    def rest(self) -> list[bytes]:
        """Give the last line, if it has no end."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


def format_duration(elapsed_ms: int) -> str:
    """Spell a duration."""
    if elapsed_ms < 60_000:
        return f"{elapsed_ms / 1000:.1f} s"
    minutes, rest = divmod(elapsed_ms // 1000, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def plural(count: int, noun: str) -> str:
    """Count a noun: `1 task`, `2 tasks`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _visible(character: str) -> str:
    if unicodedata.category(character) in _HIDDEN:
        return character.encode("unicode_escape").decode()
    return character


def _cut(line: str) -> str:
    return line if len(line) <= LINE_LENGTH_MAX else f"{line[:LINE_LENGTH_MAX]} ..."


# Lines on stdout (results) and stderr (messages).


def write_stdout(write: Callable[[], object]) -> bool:
    """Write to stdout; False if that cannot be. A reader that has left has what it wanted, so that is no failure."""
    try:
        write()
        sys.stdout.flush()
    except BrokenPipeError:
        _silence()
    except OSError as error:
        _silence()
        print_error(f"cannot write to stdout: {error.strerror}")
        return False
    return True


def print_faults(name: str, faults: "Iterable[Fault]") -> None:
    """List what is wrong with a document, a line for each fault, the place first as compilers do."""
    listed = tuple(faults)
    print_err(f"{harmless(name)} cannot be run: {plural(len(listed), 'fault')}; nothing was started.")
    for fault in listed:
        print_err(f"  {harmless(_place(name, fault))}: {harmless(fault.message)}")


def print_server_faults(faults: Iterable[tuple[str, str]]) -> None:
    """List what a server found wrong, each with its place."""
    for path, message in faults:
        print_err(f"  {harmless(path)}: {harmless(message)}" if path else f"  {harmless(message)}")


def print_error(message: str) -> None:
    """Write an error to stderr."""
    print_err(f"taskyard: {harmless(message)}")


def print_line(line: str) -> None:
    """Write a line to stdout."""
    sys.stdout.write(line + "\n")


def print_err(line: str) -> None:
    """Write a line to stderr; a closed stderr is ignored."""
    with suppress(OSError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def _silence() -> None:
    # Python writes what is left once more at its end, and would complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _place(name: str, fault: "Fault") -> str:
    numbers = [str(number) for number in (fault.line, fault.column) if number is not None]
    place = ":".join([name, *numbers])
    return f"{place}: {fault.path}" if fault.path else place


def unknown_word(what: str, word: str, known: Iterable[str]) -> str:
    """Say that there is no such word, and which one comes nearest, or else which ones there are."""
    return unknown_name(what, harmless(word), known)


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
                raise click.UsageError(unknown_word("column", one, known))
        return [(one, known[one]) for one in wanted]


TABLE: Final = Listing()


def print_list(
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
        "table": lambda: _give_table(format_list(things, chosen, fit=fit)),
        "json": lambda: _give_json([asdict(thing) for thing in things]),
        "jsonl": lambda: _give_at_once(_json(asdict(thing)) for thing in things),
        "name": lambda: _give_at_once(harmless(name(thing)) for thing in things),
    }
    return _arrived(writers[listing.output])


def print_one(shape: dict[str, Any], form: str, lines: Callable[[], Iterable[str]], name: str) -> Exit:
    """Print one thing; `lines` tells it to people."""
    writers: dict[str, Callable[[], None]] = {
        "table": lambda: _give_lines(lines()),
        "json": lambda: _give_json(shape),
        "jsonl": lambda: print_line(_json(shape)),
        "name": lambda: print_line(harmless(name)),
    }
    return _arrived(writers[form])


def format_age(at_ms: int) -> str:
    """Say how long ago something was."""
    passed = max(0, round(time.time() - at_ms / 1000))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if passed >= 2 * size:
            return f"{passed // size} {unit}"
    return f"{passed} s"


def format_time(at_ms: int) -> str:
    """Spell a moment."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def format_time_ms(at_ms: int) -> str:
    """Spell a moment with its milliseconds, without a space."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{at_ms % 1000:03}Z"


def format_counts(counts: dict[str, int]) -> str:
    """Put counts in a line: `3 successful, 1 failed`."""
    return ", ".join(f"{count} {harmless(state)}" for state, count in counts.items() if count) or "none"


def format_cell(value: object) -> str:
    """Put something into a cell: one harmless line."""
    if value is None or value == "":
        return "-"
    return harmless(("no", "yes")[value] if isinstance(value, bool) else str(value))


def format_fields(shape: Any, columns: Sequence[Column]) -> list[str]:
    """Tell of one thing, a line for each column."""
    return format_table([[title, format_cell(value(shape))] for title, value in columns], sys.stdout)


def format_list(things: Iterable[Any], columns: Sequence[Column], *, fit: bool = True) -> list[str]:
    """Lay things out as a table, its titles above; nothing for no things."""
    found = [[value(thing) for _, value in columns] for thing in things]
    if not found:
        return []
    digits = _digits_shown(one for row in found for one in row if isinstance(one, Id))
    rows = [[format_cell(one[-digits:] if isinstance(one, Id) else one) for one in row] for row in found]
    titles = [title.upper() for title, _ in columns]
    whole = {at for at, (title, _) in enumerate(columns) if title in _NAMING}
    return format_table([titles, *rows], sys.stdout, titled=True, fit=fit, whole=whole)


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
        print_err("nothing to show")


def _give_json(shape: object) -> None:
    print_line(_json(shape, indent=2))


def _json(shape: object, indent: int | None = None) -> str:
    import json  # noqa: PLC0415 - a table does not need it

    return json.dumps(shape, indent=indent)


def _give_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print_line(line)


def _give_at_once(lines: Iterable[str]) -> None:
    """Write each line when it is there: whoever reads them does not wait for the next page."""
    for line in lines:
        print_line(line)
        sys.stdout.flush()


def _arrived(write: Callable[[], None]) -> Exit:
    return Exit.OK if write_stdout(write) else Exit.ERROR
