"""Output on stdout: tables for people, JSON for programs, names for scripts.

Text in tables and names is made harmless; JSON is written in ASCII, which no terminal obeys. On a terminal, tables have
colours and fit its width; a pipe gets whole cells.
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
#: The colours of the states of graphs, tasks and bots.
_STATES: Final = {
    "successful": _GREEN, "finished": _GREEN, "alive": _GREEN,
    "running": _CYAN, "stopping": _CYAN, "canceling": _CYAN,
    "pending": _YELLOW, "waiting": _YELLOW, "draining": _YELLOW, "maintenance": _YELLOW,
    "failed": _RED, "error": _RED, "blocked": _RED, "dead": _RED, "quarantined": _RED,
    "canceled": _DIM, "skipped": _DIM, "unscheduled": _DIM,
}  # fmt: skip


def wants_colour(stream: TextIO) -> bool:
    """Tell whether to write colours to a stream."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def can_draw(stream: TextIO) -> bool:
    """Tell whether a stream is a terminal on which drawings are wanted."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def bold(line: str) -> str:
    """Make a line for stdout bold, if stdout has colours."""
    return f"{_BOLD}{line}{_RESET}" if wants_colour(sys.stdout) else line


def colour_state(cell: str) -> str:
    """Colour a cell that begins with a state."""
    word = _WORD.match(cell)
    colour = _STATES.get(word[0], "") if word else ""
    return f"{colour}{cell}{_RESET}" if colour else cell


# Tables: aligned by the width of characters, cut to the width of a terminal. Cells must be harmless.


GAP: Final = "  "
#: The minimal width of a column; on a narrower terminal, lines wrap.
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
    """Align rows in columns; with `titled`, the first row has the titles.

    With `fit`, cells are cut to the width of the terminal, except for the columns in `whole`.
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
    """Return the width of a terminal; None if the stream is no terminal."""
    if not stream.isatty():
        return None
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None


def width(text: str) -> int:
    """Count the columns of a text: wide characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(_width(character) for character in text)


def fitted(widths: Sequence[int], room: int, whole: Collection[int] = ()) -> list[int]:
    """Make the widest columns narrower until a line fits, down to the minimal width; never those in `whole`."""
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
    """Shorten text to some columns, with dots at the end."""
    if width(text) <= room:
        return text
    kept = 0
    for at, character in enumerate(text):
        kept += _width(character)
        if kept > room - 3:
            return f"{text[:at]}..."
    return text


def _aligned(plain: Sequence[str], shown: Sequence[str], widths: Sequence[int]) -> str:
    """Join cells, each as wide as its column; escape codes for colours have no width."""
    padded = (one + " " * (most - width(cell)) for cell, one, most in zip(plain, shown, widths, strict=True))
    return GAP.join(padded).rstrip()


def _painted(row: Sequence[str], states: Collection[int]) -> list[str]:
    """Colour the states in a row: in the given columns, or after the word `state`."""
    at = states or ({1} if row[0] == "state" else ())
    return [colour_state(cell) if place in at else cell for place, cell in enumerate(row)]


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


# Text for a terminal. Output of tasks and text of documents may be hostile: it goes through `harmless`.


#: How many last lines of a failed task are shown.
TAIL_LINES_MAX = 10
#: Longer lines are cut: a minified file must not fill the screen.
LINE_LENGTH_MAX = 400
#: Longer lines are split into pieces of this length.
LINE_BYTES_MAX = 8_192

#: Sequences that a terminal obeys: OSC and similar ones with their text (within a line: a missing end must not hide the
#: rest), CSI, then any other escape sequence.
_ESCAPES = re.compile(
    "(?:\x1b[\\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)?"
    "|(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]?"
    "|\x1b[ -/]*[0-~]?"
)
#: Control characters, marks that reverse the reading order, surrogates, line separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def harmless(text: str) -> str:
    """Make text safe for a terminal, in one line: drop escape sequences, spell out other hidden characters."""
    plain = _ESCAPES.sub("", text).replace("\t", "    ")
    return plain if plain.isascii() and plain.isprintable() else "".join(map(_visible, plain))


def last_lines(tail: str, lines_max: int = TAIL_LINES_MAX) -> list[str]:
    """Return the last lines of output, each harmless and of limited length."""
    # A lone carriage return restarts the line: a terminal shows only the last part.
    plain = re.sub(r"\r+\n", "\n", _ESCAPES.sub("", tail))
    lines = [line.rpartition("\r")[2] for line in plain.split("\n")]
    shown = [_cut(harmless(line.rstrip())) for line in lines if line.strip()]
    return shown[-lines_max:]


def shown_line(line: bytes) -> str:
    """Make a line of output harmless; after carriage returns, only its last part is shown."""
    # A lone carriage return restarts the line: a terminal shows only the last part.
    return harmless(line.decode(errors="replace").rstrip("\r").rpartition("\r")[2])


class Lines:
    """Cuts pieces of output into lines of limited length."""

    def __init__(self, start: int = 0) -> None:
        """Take the offset of the first byte."""
        self.at = start  # offset of the line that is not complete yet
        self._rest = b""

    def of(self, piece: bytes) -> list[bytes]:
        """Return the lines that a piece completes."""
        return [line for _, line in self.placed(piece)]

    def placed(self, piece: bytes) -> list[tuple[int, bytes]]:
        """Return the lines that a piece completes, each with its offset."""
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
        """Return the last line, if it has no line break."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


def format_duration(elapsed_ms: int) -> str:
    """Format a duration."""
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
    """Write to stdout; return False on an error. A closed pipe is no error: the reader has what it wanted."""
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


def print_faults(
    name: str, faults: "Iterable[Fault]", refused: str = "cannot be run", left: str = "nothing was started"
) -> None:
    """List the faults of a document, each with its place in front, as compilers do."""
    listed = tuple(faults)
    print_err(f"{harmless(name)} {refused}: {plural(len(listed), 'fault')}; {left}.")
    for fault in listed:
        print_err(f"  {harmless(_place(name, fault))}: {harmless(fault.message)}")


def print_server_faults(faults: Iterable[tuple[str, str]]) -> None:
    """List the faults that a server found, each with its path."""
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
    # At its exit Python flushes stdout again, and would print an error.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _place(name: str, fault: "Fault") -> str:
    numbers = [str(number) for number in (fault.line, fault.column) if number is not None]
    place = ":".join([name, *numbers])
    return f"{place}: {fault.path}" if fault.path else place


def unknown_word(what: str, word: str, known: Iterable[str]) -> str:
    """Say that a word is unknown, and name the nearest known one, or all of them."""
    return unknown_name(what, harmless(word), known)


#: The output formats.
FORMS: Final = ("table", "json", "jsonl", "name")

Thing = TypeVar("Thing", bound="DataclassInstance")
Column = tuple[str, Callable[[Any], object]]


class Id(str):
    """The id of a graph or a task: a table shows only its end, which is enough to name it."""

    __slots__ = ()


#: How many digits of an id a table shows; more if two ids of the table have the same end.
ENDING_DIGITS: Final = 6
#: Columns with names of graphs and tasks, which are never cut.
_NAMING: Final = frozenset({"id", "task", "graph", "subject", "held by", "waiting"})


class Listing(NamedTuple):
    """How to print a list."""

    output: str = "table"
    columns: str | None = None

    def chosen(self, columns: Sequence[Column]) -> list[Column]:
        """Return the wanted columns; by default all."""
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
    """Print objects; lines are printed as soon as the server has sent their page.

    With `fit`, tables are cut to the width of a terminal.
    """
    chosen = listing.chosen(columns)
    writers: dict[str, Callable[[], None]] = {
        "table": lambda: _print_table(format_list(things, chosen, fit=fit)),
        "json": lambda: _print_json([asdict(thing) for thing in things]),
        "jsonl": lambda: _print_at_once(_json(asdict(thing)) for thing in things),
        "name": lambda: _print_at_once(harmless(name(thing)) for thing in things),
    }
    return _write(writers[listing.output])


def print_one(shape: dict[str, Any], form: str, lines: Callable[[], Iterable[str]], name: str) -> Exit:
    """Print one object; `lines` makes the lines for people."""
    writers: dict[str, Callable[[], None]] = {
        "table": lambda: _print_lines(lines()),
        "json": lambda: _print_json(shape),
        "jsonl": lambda: print_line(_json(shape)),
        "name": lambda: print_line(harmless(name)),
    }
    return _write(writers[form])


def format_age(at_ms: int) -> str:
    """Format how long ago a time was."""
    passed = max(0, round(time.time() - at_ms / 1000))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if passed >= 2 * size:
            return f"{passed // size} {unit}"
    return f"{passed} s"


def format_time(at_ms: int) -> str:
    """Format a time."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def format_time_ms(at_ms: int) -> str:
    """Format a time with milliseconds, without a space."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{at_ms % 1000:03}Z"


def format_counts(counts: dict[str, int]) -> str:
    """Format counts: `3 successful, 1 failed`."""
    return ", ".join(f"{count} {harmless(state)}" for state, count in counts.items() if count) or "none"


def format_cell(value: object) -> str:
    """Format a cell: one harmless line."""
    if value is None or value == "":
        return "-"
    return harmless(("no", "yes")[value] if isinstance(value, bool) else str(value))


def format_fields(shape: Any, columns: Sequence[Column]) -> list[str]:
    """Format one object, with a line for each column."""
    return format_table([[title, format_cell(value(shape))] for title, value in columns], sys.stdout)


def format_list(things: Iterable[Any], columns: Sequence[Column], *, fit: bool = True) -> list[str]:
    """Format objects as a table with titles; no lines if there are no objects."""
    found = [[value(thing) for _, value in columns] for thing in things]
    if not found:
        return []
    digits = _digits_shown(one for row in found for one in row if isinstance(one, Id))
    rows = [[format_cell(one[-digits:] if isinstance(one, Id) else one) for one in row] for row in found]
    titles = [title.upper() for title, _ in columns]
    whole = {at for at, (title, _) in enumerate(columns) if title in _NAMING}
    return format_table([titles, *rows], sys.stdout, titled=True, fit=fit, whole=whole)


def _digits_shown(ids: Iterable[Id]) -> int:
    """Return how many last digits distinguish the ids of a table."""
    every = set(ids)
    longest = max(map(len, every), default=ENDING_DIGITS)
    return next(
        (digits for digits in range(ENDING_DIGITS, longest) if len({one[-digits:] for one in every}) == len(every)),
        longest,
    )


def _print_table(lines: list[str]) -> None:
    _print_lines(lines)
    if not lines:
        print_err("nothing to show")


def _print_json(shape: object) -> None:
    print_line(_json(shape, indent=2))


def _json(shape: object, indent: int | None = None) -> str:
    import json  # noqa: PLC0415 - a table does not need it

    return json.dumps(shape, indent=indent)


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print_line(line)


def _print_at_once(lines: Iterable[str]) -> None:
    """Write each line at once, without waiting for the next page."""
    for line in lines:
        print_line(line)
        sys.stdout.flush()


def _write(write: Callable[[], None]) -> Exit:
    return Exit.OK if write_stdout(write) else Exit.ERROR
