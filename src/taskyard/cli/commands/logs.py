"""The command `logs`: the output of a task, or of all tasks of a graph.

A pipe gets every byte; a terminal gets harmless text.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import click

from taskyard.cli import progress
from taskyard.cli.client import Server, any_argument, connected, server_options, task_or_graph
from taskyard.cli.exit_codes import Exit
from taskyard.cli.options import Number, bundle, command, duration, flag
from taskyard.cli.output import Lines, format_time_ms, harmless, print_err, print_line, shown_line, write_stdout

if TYPE_CHECKING:
    from taskyard.sdk.client import Client
    from taskyard.wire.api import OutputTime, TaskView

EXAMPLES: Final = """\
Examples:

    taskyard logs 00c0ffee12345678               print the last attempt
    taskyard logs -f 00c0ffee12345678            follow it
    taskyard logs 78a6ff3e8d8c0f28/build         name a task by its label
    taskyard logs -f 78a6ff3e8d8c0f28            follow all tasks of a graph
    taskyard logs -t --since 10m --tail 100 78a6ff3e8d8c0f28/build
    taskyard logs --attempt 1 00c0ffee12345678 > first.log
"""

#: How much is read at once to find the last lines.
TAIL_BYTES: Final = 65_536
#: The longest time to follow a graph: some years.
FOLLOW_SECONDS: Final = 3e8


class LogOptions(NamedTuple):
    """Which output to print, and how."""

    follow: bool = False
    attempt: int | None = None
    tail: int | None = None
    since: int | None = None
    timestamps: bool = False
    raw: bool = False

    @property
    def since_ms(self) -> int:
        """The time from which on output is printed."""
        return 0 if self.since is None else round(time.time() * 1000) - self.since


#: A prefix and a line.
_Line: TypeAlias = tuple[str, bytes]


@command("logs", EXAMPLES)
@any_argument
@bundle(
    "how",
    LogOptions,
    flag("--follow", "-f", help="Follow the output until the task or the graph ends."),
    click.option("--attempt", type=Number(1), metavar="N", help="Attempt of a task [default: the last]."),
    click.option("--tail", type=Number(0, 1_000_000), metavar="N", help="Only the last N lines of each task."),
    duration("--since", help="Only output that is newer than this, such as 10m."),
    flag("--timestamps", "-t", help="Put the time before each line."),
    flag("--raw", help="Print every byte on a terminal too, escape sequences included."),
)
@server_options
def logs(id: str, how: LogOptions, server: Server) -> int:
    """Print the output of a task, or of all tasks of a graph.

    For a graph, each line begins with the label of its task. A pipe or a file
    gets every byte; on a terminal, escape sequences are removed unless --raw
    is given.
    """
    with connected(server) as client:
        return task_or_graph(
            client,
            id,
            lambda task: _print_task(client, task, how),
            lambda graph: _print_graph(client, graph, how),
        )


def _print_task(client: "Client", task: str, how: LogOptions) -> Exit:
    attempt = how.attempt
    start = 0
    if how.tail is not None or how.since is not None:
        start = _start(client, client.task(task), attempt, how)
    if how.follow:
        pieces = client.follow(task, attempt=attempt, start=start)
    else:
        pieces = iter([client.output(task, attempt=attempt, start=start)])
    if not how.timestamps:
        write = _show if _is_shown(how) else _pass_on
        return _delivered(lambda: write(_noted(pieces)))
    output = _Output(client, task, attempt, start, how)
    return _delivered(lambda: _print_lines(_timed(output, _noted(pieces)), how))


def _timed(output: "_Output", pieces: Iterable[bytes]) -> Iterator[_Line]:
    for piece in pieces:
        yield from output.lines(piece)
    yield from output.rest()


def _print_graph(client: "Client", graph: str, how: LogOptions) -> Exit:
    client.graph(graph)
    if how.attempt is not None:
        raise click.UsageError("--attempt needs a task, and this is a graph; name a task as GRAPH/LABEL")
    outputs = _GraphOutputs(client, graph, how)
    return _delivered(lambda: _print_lines(outputs.followed() if how.follow else outputs.look(), how))


def _delivered(write: "Callable[[], None]") -> Exit:
    return Exit.OK if write_stdout(write) else Exit.ERROR


class _Output:
    """The output of one attempt, cut into lines."""

    def __init__(
        self, client: "Client", task: str, attempt: int | None, start: int, how: LogOptions, label: str = ""
    ) -> None:
        self._client, self._task, self._attempt = client, task, attempt
        self._prefix = f"{harmless(label)} | " if label else ""
        self._is_timed = how.timestamps
        self._read_up_to = start
        self._lines = Lines(start)
        self._times: Iterator[OutputTime] = iter(())
        self._next: OutputTime | None = None
        self._stamp = ""

    def new(self) -> Iterator[_Line]:
        """Yield the lines that are complete since the last time."""
        yield from self.lines(self._client.output(self._task, attempt=self._attempt, start=self._read_up_to))

    def lines(self, piece: bytes) -> Iterator[_Line]:
        """Yield the lines that a piece completes."""
        if piece and self._is_timed:
            self._times = self._client.output_times(self._task, attempt=self._attempt, start=self._lines.at)
            self._next = next(self._times, None)
        self._read_up_to += len(piece)
        for at, line in self._lines.placed(piece):
            yield self._prefixed(at, line)

    def rest(self) -> Iterator[_Line]:
        """Yield the last line, if it has no line break."""
        for line in self._lines.rest():
            yield self._prefixed(self._lines.at, line)

    def _prefixed(self, at: int, line: bytes) -> _Line:
        while self._next is not None and self._next.start <= at:
            self._stamp = f"{format_time_ms(self._next.at_ms)} "
            self._next = next(self._times, None)
        return self._prefix + self._stamp, line


class _GraphOutputs:
    """The output of all tasks of a graph: the last attempt of each, and all that begin while it is followed."""

    def __init__(self, client: "Client", graph: str, how: LogOptions) -> None:
        self._client = client
        self._graph = graph
        self._how = how
        self._begun: dict[str, int] = {}  # the last attempt of each task that was seen
        self._open: dict[str, _Output] = {}  # of attempts that may still print
        self._last: object = None

    def look(self) -> Iterator[_Line]:
        """Yield the new lines of all tasks."""
        for task in self._client.tasks(self._graph):
            yield from self._of(task)
            if not self._how.follow and task.id in self._open:
                yield from self._open[task.id].rest()

    def followed(self) -> Iterator[_Line]:
        """Yield all lines until the graph is settled."""
        from taskyard.sdk.errors import Overloaded, Unreachable  # noqa: PLC0415 - it comes with the client

        is_whole = False
        for seen in self._client.watch(self._graph, FOLLOW_SECONDS):
            has_moved, self._last = self._last != (now := (seen.moved_ms, seen.counts)), now
            try:
                is_whole = False
                if has_moved or seen.settled:
                    yield from self.look()
                else:
                    for output in self._open.values():
                        yield from output.new()
                is_whole = True
            except (Overloaded, Unreachable):
                self._last = None  # try again with the next look
        if not is_whole:
            yield from self.look()

    def _of(self, task: "TaskView") -> Iterator[_Line]:
        attempt = task.attempt if task.reused is None else task.reused.attempt
        before = self._begun.get(task.id)
        for number in range(attempt if before is None else before + 1, attempt + 1):
            if task.id in self._open:
                yield from self._end(task.id)
            if number and not (task.ended_ms and task.ended_ms < self._how.since_ms):
                self._begin(task, number)
            self._begun[task.id] = number
        if task.id in self._open:
            yield from self._open[task.id].new() if task.state in progress.MOVING else self._end(task.id)

    def _begin(self, task: "TaskView", number: int) -> None:
        # --tail and --since do not apply to attempts that begin while the graph is followed.
        is_first = task.id not in self._begun
        start = _start(self._client, task, number, self._how) if is_first else 0
        # The server knows whose output a task has that reused another; that one may have been deleted.
        of_attempt = number if task.reused is None else None
        self._open[task.id] = _Output(self._client, task.id, of_attempt, start, self._how, task.label)

    def _end(self, id: str) -> Iterator[_Line]:
        output = self._open[id]
        yield from output.new()
        yield from output.rest()
        del self._open[id]


def _start(client: "Client", task: "TaskView", attempt: int | None, how: LogOptions) -> int:
    """Find the first byte to print of the output of an attempt."""
    id, number = (task.id, attempt or task.attempt) if task.reused is None else (task.reused.task, task.reused.attempt)
    if how.tail is None and how.since is None:
        return 0
    size = _output_size(client, id, number)
    start = 0
    if how.since is not None and size:
        first = next(client.output_times(id, attempt=number, since_ms=how.since_ms, limit=1), None)
        start = size if first is None else first.start
    return start if how.tail is None else max(start, _tail_start(client, id, number, size, how.tail))


def _output_size(client: "Client", task: str, attempt: int) -> int:
    from taskyard.sdk.errors import NotFound  # noqa: PLC0415 - it comes with the client

    try:
        return next((one.output_bytes for one in client.attempts(task) if one.number == attempt), 0)
    except NotFound:  # it was reused, and deleted since
        return 0


def _tail_start(client: "Client", task: str, attempt: int, size: int, lines: int) -> int:
    """Find the first byte of the last lines."""
    at, left = size, lines
    while at > 0 and left > 0:
        first = max(0, at - TAIL_BYTES)
        block = client.output(task, attempt=attempt, start=first, end=at)
        end = len(block) - 1 if at == size else len(block)  # no line begins after the last line break
        while (end := block.rfind(b"\n", 0, max(0, end))) >= 0:
            left -= 1
            if not left:
                return first + end + 1
        at = first
    return at if lines else size


def _noted(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Pass bytes on; on a terminal, say if there are none."""
    is_empty = True
    for piece in pieces:
        is_empty = is_empty and not piece
        yield piece
    if is_empty and sys.stdout.isatty():
        print_err("there is no output")


def _is_shown(how: LogOptions) -> bool:
    """Tell whether the output goes to a terminal and must be made harmless."""
    return sys.stdout.isatty() and not how.raw


def _pass_on(pieces: Iterable[bytes]) -> None:
    for piece in pieces:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def _show(pieces: Iterable[bytes]) -> None:
    for line in lines_of(pieces):
        print_line(shown_line(line))
        sys.stdout.flush()


def _print_lines(lines: Iterable[_Line], how: LogOptions) -> None:
    is_shown = _is_shown(how)
    for before, line in lines:
        whole = shown_line(line).encode() if is_shown else line
        sys.stdout.buffer.write(before.encode() + whole + b"\n")
        if how.follow:
            sys.stdout.buffer.flush()


def lines_of(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Cut pieces of output into lines of limited length."""
    lines = Lines()
    for piece in pieces:
        yield from lines.of(piece)
    yield from lines.rest()
