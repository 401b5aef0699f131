"""The commands that bring graphs to a server: `submit` and `extend`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from taskyard.cli import documents, foresight, forms, naming, reports, session, standing, watching
from taskyard.cli.exits import Ended, Exit
from taskyard.cli.options import bundle, command, duration, flag
from taskyard.cli.session import Server, connected
from taskyard.wire.documents import Fault, RefusedDocument

if TYPE_CHECKING:
    from collections.abc import Callable

    from taskyard.sdk.client import Client

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
@documents.file_argument
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
@forms.output_option("name")
@session.server_options
def submit(file: str, how: SubmitOptions, key: str, output: str, server: Server) -> int:
    """Have a server store and run a graph.

    Its id goes to stdout, progress to stderr. Ctrl-C ends the waiting, not
    the graph.
    """
    document, text = _document(file)
    with connected(server) as client:
        if how.dry_run:
            return foresight.give(_placed(file, text, lambda: client.check(document)), output)
        stored = _placed(file, text, lambda: client.submit(document, key=key))
        if not how.wait:
            return forms.give_one(asdict(stored), output, lambda: [stored.graph_id], stored.graph_id)
        return _wait(client, stored.graph_id, how.timeout / 1000, output)


@command("extend", EXTEND_EXAMPLES)
@naming.graph_argument
@documents.file_argument
@forms.output_option("name")
@session.server_options
def extend(graph: str, file: str, output: str, server: Server) -> int:
    """Add the tasks of a document to a graph that runs.

    Tasks that it has already, defined the same way, stay as they are.
    """
    document, text = _document(file)
    with connected(server) as client:
        id = naming.graph_id(client, graph)
        stored = _placed(file, text, lambda: client.extend(id, document.get("tasks", {})))
        return forms.give_one(asdict(stored), output, lambda: [stored.graph_id], stored.graph_id)


def _document(file: str) -> tuple[dict[str, Any], bytes]:
    """Read a document; say what is wrong with its text, and end."""
    from taskyard.wire.documents import read_document  # noqa: PLC0415 - a parser costs time to load

    name = documents.name_of(file)
    try:
        text = documents.read(file)
        value = read_document(text, name)
    except RefusedDocument as refused:
        reports.say_faults(name, refused.faults)
        raise Ended(Exit.USAGE) from refused
    except OSError as error:
        reports.say_error(f"cannot read {name}: {error.strerror}")
        raise Ended(Exit.USAGE) from error
    if not isinstance(value, dict):
        reports.say_faults(name, [Fault("a graph document is an object with `tasks`")])
        raise Ended(Exit.USAGE)
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
        reports.say_faults(documents.name_of(file), placed)
        raise Ended(Exit.USAGE) from refused


def _wait(client: "Client", graph: str, timeout_s: float, output: str) -> Exit:
    reports.talk(f"graph {graph} is stored; Ctrl-C ends the waiting, not the graph")
    seen = watching.watch(client, graph, timeout_s)
    code = watching.verdict(client, seen)
    return forms.give_one(asdict(seen), output, lambda: [standing.headline(seen)], graph) or code
