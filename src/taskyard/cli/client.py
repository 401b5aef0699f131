"""Connect a command to its server, and turn errors into messages and exit codes."""

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import click

from taskyard.cli.exit_codes import CommandFailed, Exit
from taskyard.cli.options import PlainText, ServerOption, bundle, completes
from taskyard.cli.output import harmless, print_err, print_error, print_server_faults
from taskyard.cli.profiles import Target, find

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from taskyard.sdk.client import Client
    from taskyard.sdk.errors import ClientError


Answer = TypeVar("Answer")


class Server(NamedTuple):
    """The options that name the server and the token."""

    url: str | None = None
    token: str | None = None
    profile: str | None = None
    ca_file: str | None = None

    def target(self) -> Target:
        """Find the server, also in the environment and in files."""
        return find(self.url, self.token, self.profile, self.ca_file)


server_options = bundle(
    "server",
    Server,
    click.option(
        "--url",
        cls=ServerOption,
        metavar="URL",
        help="Server address; of several servers of a database, with commas between them "
        "[default: TASKYARD_URL, the profile's, or http://127.0.0.1:8420].",
    ),
    click.option(
        "--token",
        cls=ServerOption,
        metavar="TOKEN",
        help="Token; visible to other users, so prefer TASKYARD_TOKEN or a profile.",
    ),
    click.option(
        "--profile",
        cls=ServerOption,
        metavar="NAME",
        shell_complete=completes("profile"),
        help="Profile to use [default: TASKYARD_PROFILE, or the default profile].",
    ),
    click.option(
        "--ca-file",
        cls=ServerOption,
        metavar="PATH",
        help="Certificate of the authority that signed the server's [default: TASKYARD_CA_FILE].",
    ),
)


@contextmanager
def connected(server: Server) -> "Iterator[Client]":
    """Yield a client; print errors of the client, and fail the command with their exit code."""
    from taskyard.sdk.errors import ClientError  # noqa: PLC0415 - it costs time to load

    target = server.target()
    try:
        with client_of(target) as client:
            yield client
    except ClientError as error:
        _print_error(error)
        raise CommandFailed(_code(error)) from error


def client_of(target: Target, timeout_s: float | None = None) -> "Client":
    """Make a client, and warn if it sends its token unencrypted."""
    import warnings  # noqa: PLC0415 - it costs time to load, as the next one does

    from taskyard.sdk.client import TIMEOUT_SECONDS, Client  # noqa: PLC0415
    from taskyard.sdk.http import plaintext_token_warning  # noqa: PLC0415

    if why := plaintext_token_warning(target.url, target.token):
        print_err(f"warning: {why}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the warning was just printed
        return Client(target.url, target.token, timeout_s=timeout_s or TIMEOUT_SECONDS, ca_file=target.ca_file)


def _print_error(error: "ClientError") -> None:
    from taskyard.sdk.errors import Refused, Unauthorised  # noqa: PLC0415

    print_error(str(error))
    if isinstance(error, Refused):
        print_server_faults([(fault.path, fault.message) for fault in error.faults])
    if isinstance(error, Unauthorised):
        print_err("  `taskyard login URL` saves a token; `taskyard config` shows which token was used")


def _code(error: "ClientError") -> Exit:
    from taskyard.sdk.errors import Forbidden, NotFound, Refused, Unauthorised  # noqa: PLC0415

    if isinstance(error, Unauthorised | Forbidden):
        return Exit.DENIED
    if isinstance(error, NotFound):
        return Exit.MISSING
    # The request is wrong, as a command line can be.
    return Exit.USAGE if isinstance(error, Refused) and error.problem.status in (400, 413, 422) else Exit.ERROR


def first_found(first: "Callable[[], Answer]", second: "Callable[[], Answer]") -> Answer:
    """Call `first`, or else `second` if the id is not found: ids of graphs and tasks look the same."""
    from taskyard.sdk.errors import NotFound  # noqa: PLC0415

    try:
        return first()
    except NotFound:
        return second()


# Naming graphs and tasks: an id or the end of an id, or `GRAPH/LABEL` for a task.


#: Separates a graph from a label. An id has no slash, a label may have some.
BETWEEN: Final = "/"
#: The end of an id. The beginning of an id is a time, which is the same for days.
_ENDING: Final = re.compile("[0-9a-f]{5,15}")


def _refuse_label(named: str) -> None:
    if BETWEEN in named:
        raise ValueError(f"{named!r} is a task; a graph is expected")


#: The name of a graph on a command line.
GRAPH: Final = PlainText(_refuse_label)
graph_argument = click.argument(
    "graph", type=GRAPH, metavar="GRAPH", help="Graph id, or its end.", shell_complete=completes("graph")
)
optional_graph_argument = click.argument(
    "graph",
    type=GRAPH,
    metavar="[GRAPH]",
    required=False,
    help="Graph id, or its end; left out, all graphs.",
    shell_complete=completes("graph"),
)
task_argument = click.argument(
    "task", metavar="TASK", help="Task id, its end, or GRAPH/LABEL.", shell_complete=completes("task")
)
_ANY_HELP: Final = "Id of a graph or a task, its end, or GRAPH/LABEL for a task."
any_argument = click.argument("id", metavar="ID", help=_ANY_HELP, shell_complete=completes("any"))
any_arguments = click.argument(
    "ids", metavar="ID...", nargs=-1, required=True, help=_ANY_HELP, shell_complete=completes("any")
)
optional_arguments = click.argument("ids", metavar="[ID...]", nargs=-1, help=_ANY_HELP, shell_complete=completes("any"))


def graph_id(client: "Client", named: str) -> str:
    """Return the id of a graph; the end of an id is looked up."""
    return _whole(client, named, "graph")


def task_id(client: "Client", named: str) -> str:
    """Return the id of a task; a label and the end of an id are looked up."""
    graph, is_label, label = named.partition(BETWEEN)
    if not is_label:
        return _whole(client, named, "task")
    graph = graph_id(client, graph)
    found = next(iter(client.tasks(graph, label=label, limit=1)), None) if label else None
    if found is None:
        print_error(f"graph {graph} has no task {label!r}; `taskyard tasks {graph}` lists those it has")
        raise CommandFailed(Exit.MISSING)
    return found.id


def any_id(client: "Client", named: str) -> str:
    """Return the id of a graph or a task, of whichever kind."""
    return task_id(client, named) if BETWEEN in named else _whole(client, named)


def graph_or_task(
    client: "Client", named: str, graph: "Callable[[str], Answer]", task: "Callable[[str], Answer]"
) -> Answer:
    """Call `graph` with the id, or else `task` if there is no such graph."""
    return _first_of(client, named, task, [graph, task])


def task_or_graph(
    client: "Client", named: str, task: "Callable[[str], Answer]", graph: "Callable[[str], Answer]"
) -> Answer:
    """Call `task` with the id, or else `graph` if there is no such task."""
    return _first_of(client, named, task, [task, graph])


def _first_of(
    client: "Client",
    named: str,
    task: "Callable[[str], Answer]",
    kinds: "Sequence[Callable[[str], Answer]]",
) -> Answer:
    if BETWEEN in named:
        return task(task_id(client, named))
    named = _whole(client, named)
    from taskyard.sdk.errors import NotFound  # noqa: PLC0415 - it comes with the client

    first, second = kinds
    try:
        return first_found(lambda: first(named), lambda: second(named))
    except NotFound as missing:
        print_error(f"there is no graph or task {named}; `taskyard graphs` lists graphs")
        raise CommandFailed(Exit.MISSING) from missing


def _whole(client: "Client", named: str, kind: str = "") -> str:
    """Return the only id with this end; anything that cannot be the end of an id is returned as it is."""
    if not _ENDING.fullmatch(named):
        return named
    answer = client.ids(named)
    found = [one for one in answer.items if kind in ("", one.kind)]
    if len(found) == 1 and answer.whole:
        return found[0].id
    if not found:
        print_error(f"no {kind or 'graph or task'} has an id that ends in {named}; `taskyard graphs` lists graphs")
        raise CommandFailed(Exit.MISSING)
    print_error(f"{named} is the end of {'' if answer.whole else 'more than '}{len(found)} ids; add more digits")
    for one in found:
        inside = f" of graph {harmless(one.graph_id)}" if one.kind == "task" else ""
        print_err(f"  {harmless(one.id)}  {one.kind} {harmless(one.name)}{inside}")
    raise CommandFailed(Exit.USAGE)
