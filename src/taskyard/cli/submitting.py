"""The commands that bring graphs to a server: `submit` and `extend`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeVar

from taskyard.cli import documents, foresight, forms, reports, spans, standing, watching
from taskyard.cli.exits import Ended, Exit
from taskyard.cli.grammar import Parameter
from taskyard.cli.naming import GraphId, graph_id
from taskyard.cli.session import HERE, Server, connected
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


class Manner(NamedTuple):
    """How far a submission goes: not at all, into the store, or to the end of the graph."""

    wait: Annotated[bool, Parameter(negative="", help="Watch it until it is settled.")] = False
    timeout: Annotated[str, Parameter(validator=spans.check, help="How long to wait at most: 90s, 5m, 1h, 2d.")] = "1d"
    dry_run: Annotated[bool, Parameter(negative="", help="Only say what would become of it; store nothing.")] = False


AT_ONCE: Final = Manner()


def submit(
    file: documents.File,
    /,
    *,
    manner: Manner = AT_ONCE,
    key: Annotated[str, Parameter(help="A word of yours: repeated with it, this is the same graph.")] = "",
    output: forms.Form = "name",
    server: Server = HERE,
) -> int:
    """Have a server store and run a graph.

    Its id goes to stdout, progress to stderr. Ctrl-C ends the waiting, not
    the graph.
    """
    document, text = _document(file)
    with connected(server) as client:
        if manner.dry_run:
            return foresight.give(_placed(file, text, lambda: client.check(document)), output)
        stored = _placed(file, text, lambda: client.submit(document, key=key))
        if not manner.wait:
            return forms.give_one(asdict(stored), output, lambda: [stored.graph_id], stored.graph_id)
        return _wait(client, stored.graph_id, spans.seconds_of(manner.timeout), output)


def extend(
    graph: GraphId,
    file: documents.File,
    /,
    *,
    output: forms.Form = "name",
    server: Server = HERE,
) -> int:
    """Add the tasks of a document to a graph that runs.

    Tasks that it has already, defined the same way, stay as they are.
    """
    document, text = _document(file)
    with connected(server) as client:
        id = graph_id(client, graph)
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


def _wait(client: "Client", graph: str, timeout_s: int, output: str) -> Exit:
    reports.talk(f"graph {graph} is stored; Ctrl-C ends the waiting, not the graph")
    seen = watching.watch(client, graph, timeout_s)
    code = watching.verdict(client, seen)
    return forms.give_one(asdict(seen), output, lambda: [standing.headline(seen)], graph) or code
