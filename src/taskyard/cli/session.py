"""How a command speaks with a server: which one, and what is said and returned when it does not go well."""

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import click

from taskyard.cli import reports
from taskyard.cli.exits import Ended, Exit
from taskyard.cli.options import ServerOption, bundle, completes
from taskyard.cli.profile import Target, find

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from taskyard.sdk.client import Client
    from taskyard.sdk.errors import ClientError

Answer = TypeVar("Answer")


class Server(NamedTuple):
    """Which server, and with which token."""

    url: str | None = None
    token: str | None = None
    profile: str | None = None
    ca_file: str | None = None

    def target(self) -> Target:
        """Say which server is meant, with what stands in the environment and in files."""
        return find(self.url, self.token, self.profile, self.ca_file)


server_options = bundle(
    "server",
    Server,
    click.option(
        "--url",
        cls=ServerOption,
        metavar="URL",
        help="Server address [default: TASKYARD_URL, the profile's, or http://127.0.0.1:8420].",
    ),
    click.option(
        "--token",
        cls=ServerOption,
        metavar="TOKEN",
        help="Token. Other users can see it: prefer TASKYARD_TOKEN or a profile.",
    ),
    click.option(
        "--profile",
        cls=ServerOption,
        metavar="NAME",
        shell_complete=completes("profile"),
        help="Profile to use [default: TASKYARD_PROFILE, or the one in use].",
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
    """Give a client; say what goes wrong, and end the command with the code for it."""
    from taskyard.sdk.errors import ClientError  # noqa: PLC0415 - it costs time to load

    target = server.target()
    try:
        with client_of(target) as client:
            yield client
    except ClientError as error:
        _say(error)
        raise Ended(_code(error)) from error


def client_of(target: Target, timeout_s: float | None = None) -> "Client":
    """Make a client, and warn of a token that others could read on its way."""
    import warnings  # noqa: PLC0415 - it costs time to load, as the next one does

    from taskyard.sdk.client import TIMEOUT_SECONDS, Client  # noqa: PLC0415
    from taskyard.sdk.http import plaintext_token_warning  # noqa: PLC0415

    if why := plaintext_token_warning(target.url, target.token):
        reports.talk(f"warning: {why}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it was just told, in a line
        return Client(target.url, target.token, timeout_s=timeout_s or TIMEOUT_SECONDS, ca_file=target.ca_file)


def _say(error: "ClientError") -> None:
    from taskyard.sdk.errors import Refused, Unauthorised  # noqa: PLC0415

    reports.say_error(str(error))
    if isinstance(error, Refused):
        reports.list_faults([(fault.path, fault.message) for fault in error.faults])
    if isinstance(error, Unauthorised):
        reports.talk("  `taskyard login URL` keeps a token; `taskyard config` shows which one was used")


def _code(error: "ClientError") -> Exit:
    from taskyard.sdk.errors import Forbidden, NotFound, Refused, Unauthorised  # noqa: PLC0415

    if isinstance(error, Unauthorised | Forbidden):
        return Exit.DENIED
    if isinstance(error, NotFound):
        return Exit.MISSING
    # What was asked is wrong in itself: it has to be mended, as a command line has.
    return Exit.USAGE if isinstance(error, Refused) and error.problem.status in (400, 413, 422) else Exit.ERROR


def either(first: "Callable[[], Answer]", second: "Callable[[], Answer]") -> Answer:
    """Take an id for what `first` knows, or else for what `second` does: graphs and tasks have ids of one form."""
    from taskyard.sdk.errors import NotFound  # noqa: PLC0415

    try:
        return first()
    except NotFound:
        return second()
