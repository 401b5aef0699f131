"""`--watch`: looking again and again, until it is over, somebody ends it, or time is up.

A terminal is drawn anew with each look; elsewhere each change is one line of JSON. A server that is away for some
minutes is waited for.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import click

from taskyard.cli import paint, reports
from taskyard.cli.exits import Exit
from taskyard.cli.options import bundle, duration, flag

#: For how long nobody may answer: a server that is started again is back within that.
AWAY_SECONDS_MAX: Final = 300.0
#: A look costs the server something.
EVERY_SECONDS_MIN: Final = 0.2
#: How high a terminal is that does not say so.
LINES_UNTOLD: Final = 24


class Watch(NamedTuple):
    """Whether to go on looking, and for how long."""

    watch: bool = False
    every: int = 2_000
    timeout: int = 86_400_000


watch_options = bundle(
    "watch",
    Watch,
    flag("--watch", "-w", help="Refresh until interrupted, or until a graph is settled or a task has ended."),
    duration("--every", default=("2s", 2_000), help="Time between two refreshes of --watch."),
    duration("--timeout", default=("1d", 86_400_000), help="Stop --watch after this time."),
)


class Seen(NamedTuple):
    """What one look saw: things with ids, the same for people, and the exit code if nothing is going to change."""

    shapes: Sequence[dict[str, Any]]
    lines: Sequence[str]
    end: Exit | None = None


def follow(look: Callable[[], Seen], watch: Watch, output: str) -> Exit:
    """Look until it is over; give the exit code."""
    eye = _eye(output)
    until = time.monotonic() + watch.timeout / 1000
    pause = max(EVERY_SECONDS_MIN, watch.every / 1000)
    ended: list[Exit] = []
    arrived = reports.delivered(lambda: ended.append(_rounds(look, eye, until, pause)))
    return (ended or [Exit.OK])[0] if arrived else Exit.ERROR


def _rounds(look: Callable[[], Seen], eye: "Eye", until: float, pause: float) -> Exit:
    from taskyard.sdk.errors import Overloaded, Unreachable  # noqa: PLC0415 - it comes with the client

    heard = time.monotonic()
    while True:
        try:
            seen = look()
        except (Overloaded, Unreachable):
            if time.monotonic() > min(until, heard + AWAY_SECONDS_MAX):
                raise
        else:
            heard = time.monotonic()
            eye(seen)
            if seen.end is not None:
                return seen.end
        left = until - time.monotonic()
        if left <= 0:
            reports.say_error("the time for watching is up; --timeout says how long")
            return Exit.TIMED_OUT
        time.sleep(min(pause, left))


Eye = Callable[[Seen], None]


def _eye(output: str) -> Eye:
    """Choose how changes are shown; refuse what cannot be shown again and again."""
    if output == "jsonl":
        return _Lines()
    if output != "table":
        raise click.UsageError("--watch goes with -o table or -o jsonl")
    if not sys.stdout.isatty():
        raise click.UsageError("--watch into a pipe or a file needs -o jsonl, one line for each change")
    return _draw if paint.can_draw(sys.stdout) else _Changes()


def _draw(seen: Seen) -> None:
    """Draw over what was there, as far as the terminal is high."""
    room = max(1, _height() - 2)
    shown = list(seen.lines[:room]) or ["nothing to show"]
    if len(seen.lines) > room:
        shown[-1] = f"and {len(seen.lines) - room + 1} more lines"
    sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in shown) + "\x1b[J")
    sys.stdout.flush()


def _height() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).lines or LINES_UNTOLD
    except OSError:
        return LINES_UNTOLD


class _Changes:
    """Prints everything again when something has changed."""

    def __init__(self) -> None:
        self._last: Sequence[dict[str, Any]] | None = None

    def __call__(self, seen: Seen) -> None:
        if seen.shapes != self._last:
            self._last = seen.shapes
            reports.answer("\n".join([*seen.lines, ""]))
            sys.stdout.flush()


class _Lines:
    """Prints each thing that is new or has changed; one that is not seen any more is told as gone."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __call__(self, seen: Seen) -> None:
        import json  # noqa: PLC0415 - a table does not need it

        now = {str(one["id"]): json.dumps(one) for one in seen.shapes}
        for id, line in now.items():
            if self._known.get(id) != line:
                reports.answer(line)
        for id in self._known.keys() - now.keys():
            reports.answer(json.dumps({"id": id, "gone": True}))
        self._known = now
        sys.stdout.flush()
