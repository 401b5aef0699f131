"""The commands that bring graphs to a server: `submit` and `extend`."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from taskyard.cli import progress
from taskyard.cli.client import Server, connected, graph_argument, graph_id, server_options
from taskyard.cli.exit_codes import CommandFailed, Exit
from taskyard.cli.options import bundle, command, duration, flag, output_option
from taskyard.cli.output import format_cell, format_table, harmless, print_err, print_error, print_faults, print_one
from taskyard.wire.documents import Fault, RefusedDocument
from taskyard.wire.explain import NEVER, VERDICTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from taskyard.sdk.client import Client
    from taskyard.wire.explain import DryRun, DryTask


# Graph documents as they are given on a command line: a file, or standard input. What is in them is not judged.


#: Reading stops here: the longest document that is read, and one byte to see that it is longer.
READ_BYTES_MAX: Final = 10 * 1024 * 1024 + 1


def read(file: str) -> bytes:
    """Read the text of a document, as far as one is read; raise `OSError`."""
    if file == "-":
        return sys.stdin.buffer.read(READ_BYTES_MAX)
    with Path(file).open("rb") as document:
        return document.read(READ_BYTES_MAX)


def name_of(file: str) -> str:
    """Name a document in a message."""
    return "<stdin>" if file == "-" else file


file_argument = click.argument(
    "file", type=click.Path(), metavar="FILE", help="Graph document in YAML or JSON; - reads standard input."
)


# What `submit --dry-run` prints: what would become of each task of a graph, and nothing is stored.


def print_forecast(told: "DryRun", output: str) -> int:
    """Print a forecast; its exit code says whether every task could run somewhere."""
    # There is no graph and so no id to print: whoever asks for nothing else gets the table.
    form = "table" if output == "name" else output
    given = print_one(asdict(told), form, lambda: _lines(told), "")
    print_err(harmless(told.sentence))
    return given or (Exit.NO_BOT if told.counts.get(NEVER) else Exit.OK)


def _lines(told: "DryRun") -> "Iterator[str]":
    tasks = sorted(told.items, key=lambda one: VERDICTS.index(one.verdict))
    yield from format_table([("TASK", "WHEN", "REASON", "WHY"), *map(_row, tasks)], sys.stdout, titled=True)
    if told.more:
        yield f"and {told.more} more"
    if not told.whole:
        yield "more tasks are pending than were taken into account"


def _row(task: "DryTask") -> tuple[str, ...]:
    return (format_cell(task.label), task.verdict, task.reason, harmless(task.sentence))


Answer = TypeVar("Answer")

SUBMIT_EXAMPLES: Final = """\
Examples:

    taskyard submit nightly.yaml                     store it, print its id
    taskyard submit --wait nightly.yaml              and watch it to its end
    taskyard submit --wait --timeout 1h graph.yaml   for an hour at most
    taskyard submit --key nightly-42 nightly.yaml    once, however often asked
    taskyard submit --dry-run nightly.yaml           what would become of it
    generate-graph | taskyard submit -o json -       from standard input

With --dry-run the exit code is 6 if some task can run on no bot that exists.
With --wait it tells the outcome: 0 finished, 3 failed or canceled, 6 no bot
can run what is left, 124 not settled in time.
"""
EXTEND_EXAMPLES: Final = """\
Examples:

    taskyard extend 78a6ff3e8d8c0f28 more.yaml
    echo '{"tasks": {...}}' | taskyard extend 78a6ff3e8d8c0f28 -
"""


class SubmitOptions(NamedTuple):
    """How far a submission goes: not at all, into the store, or to the end of the graph."""

    wait: bool = False
    timeout: int = 86_400_000
    dry_run: bool = False


@command("submit", SUBMIT_EXAMPLES)
@file_argument
@bundle(
    "how",
    SubmitOptions,
    flag("--wait", help="Show progress until the graph is settled."),
    duration("--timeout", default=("1d", 86_400_000), help="Stop waiting after this time."),
    flag("--dry-run", help="Only report what would become of the graph; store nothing."),
)
@click.option(
    "--key", metavar="KEY", default="", show_default=False, help="Idempotency key: repeated with it, the same graph."
)
@output_option("name")
@server_options
def submit(file: str, how: SubmitOptions, key: str, output: str, server: Server) -> int:
    """Have a server store and run a graph.

    Its id goes to stdout, progress to stderr. Ctrl-C stops waiting, not
    the graph.
    """
    document, text = _document(file)
    with connected(server) as client:
        if how.dry_run:
            return print_forecast(_placed(file, text, lambda: client.check(document)), output)
        stored = _placed(file, text, lambda: client.submit(document, key=key))
        if not how.wait:
            return print_one(asdict(stored), output, lambda: [stored.graph_id], stored.graph_id)
        return _wait(client, stored.graph_id, how.timeout / 1000, output)


@command("extend", EXTEND_EXAMPLES)
@graph_argument
@file_argument
@output_option("name")
@server_options
def extend(graph: str, file: str, output: str, server: Server) -> int:
    """Add the tasks of a document to a graph that runs.

    Tasks that it has already, defined the same way, stay as they are.
    """
    document, text = _document(file)
    with connected(server) as client:
        id = graph_id(client, graph)
        stored = _placed(file, text, lambda: client.extend(id, document.get("tasks", {})))
        return print_one(asdict(stored), output, lambda: [stored.graph_id], stored.graph_id)


def _document(file: str) -> tuple[dict[str, Any], bytes]:
    """Read a document; say what is wrong with its text, and end."""
    from taskyard.wire.documents import read_document  # noqa: PLC0415 - a parser costs time to load

    name = name_of(file)
    try:
        text = read(file)
        value = read_document(text, name)
    except RefusedDocument as refused:
        print_faults(name, refused.faults)
        raise CommandFailed(Exit.USAGE) from refused
    except OSError as error:
        print_error(f"cannot read {name}: {error.strerror}")
        raise CommandFailed(Exit.USAGE) from error
    if not isinstance(value, dict):
        print_faults(name, [Fault("a graph document is an object with `tasks`")])
        raise CommandFailed(Exit.USAGE)
    return value, text


def _placed(file: str, text: bytes, ask: "Callable[[], Answer]") -> "Answer":
    """Ask; put the faults that the server finds on lines of the document, where they are known."""
    from taskyard.sdk.errors import Refused  # noqa: PLC0415
    from taskyard.wire.documents import find_lines  # noqa: PLC0415

    try:
        return ask()
    except Refused as refused:
        if not refused.faults:
            raise
        lines = find_lines(text, {fault.path for fault in refused.faults})
        placed = [Fault(fault.message, fault.path, lines.get(fault.path)) for fault in refused.faults]
        print_faults(name_of(file), placed)
        raise CommandFailed(Exit.USAGE) from refused


def _wait(client: "Client", graph: str, timeout_s: float, output: str) -> Exit:
    print_err(f"graph {graph} is stored; Ctrl-C stops waiting, the graph continues")
    seen = progress.watch(client, graph, timeout_s)
    code = progress.exit_of_graph(client, seen)
    return print_one(asdict(seen), output, lambda: [progress.headline(seen)], graph) or code
