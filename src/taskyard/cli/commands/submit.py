"""The commands `submit` and `extend`: send graphs to a server."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from taskyard.cli import progress
from taskyard.cli.client import Server, connected, graph_argument, graph_id, server_options
from taskyard.cli.exit_codes import CommandFailed, Exit
from taskyard.cli.options import PATH, bundle, command, flag, output_option
from taskyard.cli.output import format_cell, format_table, harmless, print_err, print_error, print_faults, print_one
from taskyard.wire.documents import Fault, RefusedDocument
from taskyard.wire.explain import NEVER, VERDICTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from taskyard.sdk.client import Client
    from taskyard.wire.explain import DryRun, DryTask


# Reading a graph document from a file or standard input.


#: One byte more than the longest document: enough to see that a document is too long.
READ_BYTES_MAX: Final = 10 * 1024 * 1024 + 1


def read(file: str) -> bytes:
    """Read the text of a document, up to the limit; raise `OSError`."""
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


# The output of `submit --dry-run`: what would happen to each task.


def print_dry_run(result: "DryRun", output: str) -> int:
    """Print a dry run; the exit code says whether a bot can run every task."""
    # There is no graph, so there is no id to print: `-o name`, the default, prints the table.
    form = "table" if output == "name" else output
    code = print_one(asdict(result), form, lambda: _lines(result), "")
    print_err(harmless(result.sentence))
    return code or (Exit.NO_BOT if result.counts.get(NEVER) else Exit.OK)


def _lines(result: "DryRun") -> "Iterator[str]":
    tasks = sorted(result.items, key=lambda one: VERDICTS.index(one.verdict))
    yield from format_table([("TASK", "WHEN", "REASON", "WHY"), *map(_row, tasks)], sys.stdout, titled=True)
    if result.more:
        yield f"and {result.more} more"
    if not result.whole:
        yield "there are more pending tasks than were taken into account"


def _row(task: "DryTask") -> tuple[str, ...]:
    return (format_cell(task.label), task.verdict, task.reason, harmless(task.sentence))


Answer = TypeVar("Answer")

SUBMIT_EXAMPLES: Final = """\
Examples:

    taskyard submit nightly.yaml                    submit it and print its id
    taskyard submit --wait nightly.yaml             watch it until it ends
    taskyard submit --wait --timeout 1h graph.yaml  wait for an hour at most
    taskyard submit --key nightly-42 nightly.yaml   submit it only once
    taskyard submit --dry-run nightly.yaml          show what would happen
    taskyard submit --parent $TASKYARD_TASK_ID part.yaml   end with this task
    taskyard submit --inputs src nightly.yaml       upload files for its tasks
    generate-graph | taskyard submit -o json -      read standard input

Exit codes with --wait: 0 finished, 3 failed or canceled, 6 no bot can run
what is left, 124 timed out. With --dry-run: 6 if no bot can run some task.
"""
EXTEND_EXAMPLES: Final = """\
Examples:

    taskyard extend 78a6ff3e8d8c0f28 more.yaml
    echo '{"tasks": {...}}' | taskyard extend 78a6ff3e8d8c0f28 -
"""


class SubmitOptions(NamedTuple):
    """Whether to submit at all, and with what."""

    dry_run: bool = False
    parent: str | None = None
    inputs: Path | None = None


@command("submit", SUBMIT_EXAMPLES)
@file_argument
@progress.waiting_options
@bundle(
    "how",
    SubmitOptions,
    flag("--dry-run", help="Show what would happen; submit nothing."),
    click.option("--parent", metavar="TASK", help="Id of a running task with which the graph ends."),
    click.option("--inputs", type=PATH, metavar="DIR", help="Folder to upload for the working folder of each task."),
)
@click.option(
    "--key", metavar="KEY", default="", show_default=False, help="Idempotency key: the same key gives the same graph."
)
@output_option("name")
@server_options
def submit(file: str, waiting: progress.Waiting, how: SubmitOptions, key: str, output: str, server: Server) -> int:
    """Submit a graph to a server.

    The id goes to stdout, progress to stderr. Ctrl-C stops waiting; the
    graph continues.
    """
    document, text = _document(file)
    with connected(server) as client:
        document = _with_files(client, file, document, text, how)
        if how.dry_run:
            return print_dry_run(_with_lines(file, text, lambda: client.check(document)), output)
        stored = _with_lines(file, text, lambda: client.submit(document, key=key, parent=how.parent))
        if not waiting.wait:
            return print_one(asdict(stored), output, lambda: [stored.graph_id], stored.graph_id)
        return progress.wait_for_new(client, [stored.graph_id], "submitted", waiting.timeout, output)


@command("extend", EXTEND_EXAMPLES)
@graph_argument
@file_argument
@output_option("name")
@server_options
def extend(graph: str, file: str, output: str, server: Server) -> int:
    """Add the tasks of a document to a running graph.

    Tasks that the graph already has with the same definition do not change.
    """
    document, text = _document(file)
    with connected(server) as client:
        id = graph_id(client, graph)
        stored = _with_lines(file, text, lambda: client.extend(id, document.get("tasks", {})))
        return print_one(asdict(stored), output, lambda: [stored.graph_id], stored.graph_id)


def _document(file: str) -> tuple[dict[str, Any], bytes]:
    """Read a document; if its text is faulty, print the faults and fail the command."""
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
        print_faults(name, [Fault("a graph document must be an object with `tasks`")])
        raise CommandFailed(Exit.USAGE)
    return value, text


def _with_files(
    client: "Client", file: str, document: dict[str, Any], text: bytes, how: SubmitOptions
) -> dict[str, Any]:
    """Upload the files of this machine that a document names, and name their digests instead."""
    if how.inputs is None and not (b"local" in text and b"inputs" in text):
        return document
    from taskyard.cli.commands.files import transfer_bar  # noqa: PLC0415 - most graphs name no files
    from taskyard.sdk.local_inputs import BadInputs  # noqa: PLC0415 - its types are slow to create
    from taskyard.wire.documents import find_lines  # noqa: PLC0415

    folder = None if how.inputs is None else str(how.inputs)
    try:
        with transfer_bar() as bar:
            return _with_lines(file, text, lambda: client.store_inputs(document, folder, meter=bar))
    except BadInputs as bad:
        lines = find_lines(text, {path for _, path in bad.faults})
        print_faults(name_of(file), [Fault(message, path, lines.get(path)) for message, path in bad.faults])
        raise CommandFailed(Exit.USAGE) from bad


def _with_lines(file: str, text: bytes, ask: "Callable[[], Answer]") -> "Answer":
    """Ask the server; if it refuses the document, print the faults with their lines and fail the command."""
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
