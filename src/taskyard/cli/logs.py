"""The command `logs`: what a task printed. A pipe gets every byte; a terminal gets text that it does not obey."""

import sys
from collections.abc import Iterable, Iterator
from typing import Annotated, Final

from taskyard.cli import reports, text
from taskyard.cli.exits import Exit
from taskyard.cli.grammar import Number, Parameter
from taskyard.cli.naming import TaskId, task_id
from taskyard.cli.session import HERE, Server, connected

EXAMPLES: Final = """\
Examples:

    taskyard logs 00c0ffee12345678               what its last attempt printed
    taskyard logs -f 00c0ffee12345678            and what it still prints
    taskyard logs 78a6ff3e8d8c0f28/build         a task by its label
    taskyard logs --attempt 1 00c0ffee12345678 > first.log
"""


def logs(
    task: TaskId,
    /,
    *,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative="", help="Go on until it ends.")] = False,
    attempt: Annotated[
        int | None, Parameter(validator=Number(gte=1), help="Which attempt; the last unless told.")
    ] = None,
    raw: Annotated[bool, Parameter(negative="", help="Every byte, on a terminal too: it may obey them.")] = False,
    server: Server = HERE,
) -> int:
    """Print what a task printed.

    A pipe or a file gets every byte as it was. On a terminal, what would act
    on it is left out, unless --raw is given.
    """
    with connected(server) as client:
        id = task_id(client, task)
        pieces = client.follow(id, attempt=attempt) if follow else iter([client.output(id, attempt=attempt)])
        write = _show if sys.stdout.isatty() and not raw else _pass_on
        return Exit.OK if reports.delivered(lambda: write(_noted(pieces))) else Exit.ERROR


def _noted(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Pass bytes on; say so to a person if there are none."""
    is_empty = True
    for piece in pieces:
        is_empty = is_empty and not piece
        yield piece
    if is_empty and sys.stdout.isatty():
        reports.talk("it has printed nothing")


def _pass_on(pieces: Iterable[bytes]) -> None:
    for piece in pieces:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def _show(pieces: Iterable[bytes]) -> None:
    for line in lines_of(pieces):
        reports.answer(text.shown_line(line))
        sys.stdout.flush()


def lines_of(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Cut what comes in pieces into lines of a bounded length."""
    lines = text.Lines()
    for piece in pieces:
        yield from lines.of(piece)
    yield from lines.rest()
