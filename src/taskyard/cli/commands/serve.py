"""The commands that stay: `serve`, a server, and `bot`, which runs tasks for one."""

import os
import re
import socket
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

import click

from taskyard.cli import client, profiles
from taskyard.cli.client import Server
from taskyard.cli.exit_codes import CommandFailed, Exit
from taskyard.cli.options import PATH, Duration, Number, PlainText, bundle, command, duration, flag, output_option
from taskyard.cli.output import harmless, plural, print_err, print_error, print_one
from taskyard.cli.ports import Backend, BotSpec, ServeSpec, StartFailed

SERVE_EXAMPLES: Final = """\
Examples:

    taskyard serve                                  taskyard.db, in this folder
    taskyard serve --database postgresql://db/yard  one that servers share
    taskyard serve --host 0.0.0.0 --port 80         for other machines
    taskyard serve --admin-token admin.token        keep a token in a file
    taskyard serve --host 0.0.0.0 --tls-cert yard.pem --tls-key yard.key

The first start prints a token with which all others are made.
"""
BOT_EXAMPLES: Final = """\
Examples:

    TASKYARD_TOKEN=ty_bot_... taskyard bot --url http://yard:8420
    taskyard bot --token-file bot.token --user taskyard-tasks
    taskyard bot --slots 4 --dimension gpu=h100 --dimension site=attic
    taskyard bot --once     run what is there to run, and end
"""
SLOTS_MAX: Final = 1_000
#: No token is longer.
TOKEN_LINE_MAX: Final = 1_024

#: A word of a routing key holds no dot; TaskCluster's limit leaves room for the other words.
_SCHEDULER_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,22}", re.ASCII)
#: What a server takes.
LEASE_MIN_MS: Final = 2_000
LEASE_MAX_MS: Final = 3_600_000

port_option = click.option(
    "--port", type=Number(0, 65_535), default=8420, metavar="PORT", help="Port to listen on; 0 takes any free port."
)


def _check_scheduler_id(written: str) -> None:
    if _SCHEDULER_ID.fullmatch(written) is None:
        raise ValueError("must have 1 to 22 letters, digits, _ and -, and no dots")


class ServeOptions(NamedTuple):
    """Where a server listens, and where it keeps things."""

    host: str = "127.0.0.1"
    port: int = 8420
    database: str | None = None
    data: Path = Path()
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tasks_max: int = 100_000
    scheduler_id: str = "taskyard"


class BotOptions(NamedTuple):
    """How a bot works."""

    state: Path | None = None
    once: bool = False
    inherit_env: bool = False
    keep_output: Path | None = None
    user: str | None = None
    token_file: Path | None = None
    remove_token_file: bool = False
    dimension: tuple[str, ...] = ()
    dimensions_file: Path | None = None


def dimensions_of(written: Iterable[str]) -> dict[str, list[str]]:
    """Read dimensions: `key=value`; a key that is given again has more than one value."""
    found: dict[str, list[str]] = {}
    for one in written:
        key, is_there, value = one.partition("=")
        if not (key and is_there and value):
            raise ValueError(f"{one!r} is not a dimension such as gpu=h100")
        found.setdefault(key, []).append(value)
    return found


@command("serve", SERVE_EXAMPLES)
@bundle(
    "place",
    ServeOptions,
    click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Address to listen on."),
    port_option,
    click.option(
        "--database",
        metavar="URL",
        help="sqlite:///FILE or postgresql://... [default: taskyard.db in the data folder].",
    ),
    click.option(
        "--data",
        type=PATH,
        default=Path(),
        show_default=False,
        metavar="DIR",
        help="Folder of the database file [default: here].",
    ),
    click.option(
        "--tls-cert", type=PATH, metavar="PATH", help="Serve https with this certificate (PEM), its chain after it."
    ),
    click.option("--tls-key", type=PATH, metavar="PATH", help="Key of the certificate, if not in the same file."),
    click.option(
        "--tasks-max", type=Number(1, 1_000_000), default=100_000, metavar="N", help="Most tasks in one request."
    ),
    click.option(
        "--scheduler-id",
        type=PlainText(_check_scheduler_id),
        default="taskyard",
        metavar="ID",
        help="First word of every routing key, `schedulerId` in answers.",
    ),
)
@click.option("--auth/--no-auth", default=True, help="Ask for tokens; without, only this machine can connect.")
@click.option("--admin-token", type=PATH, metavar="PATH", help="File for an admin token; created if it does not exist.")
@duration(
    "--lease",
    bounds=Duration(LEASE_MIN_MS, LEASE_MAX_MS),
    default=("60s", 60_000),
    help="How long a bot may be silent before its tasks are given to another bot, from 2s to 1h.",
)
@output_option("table")
@click.pass_obj
def serve(work: Backend, place: ServeOptions, auth: bool, admin_token: Path | None, lease: int, output: str) -> int:
    """Serve graphs and bots until a signal ends it."""
    database = place.database or f"sqlite:///{place.data / 'taskyard.db'}"
    # The folder that people are in is theirs, and stays as open as it is; the files in it do not.
    folder = place.data if place.database is None and place.data != Path() else None
    spec = ServeSpec(
        place.host,
        place.port,
        database,
        auth,
        admin_token,
        folder,
        place.tls_cert,
        place.tls_key,
        place.tasks_max,
        lease,
        place.scheduler_id,
    )
    if place.tls_key is not None and place.tls_cert is None:
        raise click.UsageError("--tls-key needs a certificate: give --tls-cert PATH, too")
    try:
        work.serve(spec, _ready(output))
    except StartFailed as refusal:
        print_error(f"cannot serve: {refusal}")
        return Exit.ERROR
    return Exit.OK


@command("bot", BOT_EXAMPLES)
@click.option("--name", metavar="NAME", help="Unique bot name [default: hostname].")
@click.option(
    "--slots",
    type=Number(1, SLOTS_MAX),
    metavar="N",
    help="Number of tasks to run at a time [default: the number of processors].",
)
@bundle(
    "how",
    BotOptions,
    click.option("--state", type=PATH, metavar="DIR", help="Folder of this bot alone, for what survives a restart."),
    flag("--once", help="Run the tasks that are pending, then exit."),
    flag("--inherit-env", help="Pass the whole environment to tasks, not only the basics."),
    click.option(
        "--keep-output",
        type=PATH,
        metavar="DIR",
        help="Folder for output of a task beyond the first 48 MiB; the server gets the end of it.",
    ),
    click.option(
        "--user",
        metavar="USER",
        help="User to run tasks as; needs root. Without it, a task can do whatever the user of the bot can.",
    ),
    click.option("--token-file", type=PATH, metavar="PATH", help="File with the token; - reads standard input."),
    flag("--remove-token-file", help="Remove the file after reading it, so that no task can read it."),
    click.option(
        "--dimension",
        multiple=True,
        type=PlainText(lambda written: dimensions_of([written])),
        metavar="KEY=VALUE",
        help="Dimension of the bot; can be repeated.",
    ),
    click.option(
        "--dimensions-file",
        type=PATH,
        metavar="PATH",
        help="File with a KEY=VALUE on each line; changes take effect at once.",
    ),
)
@client.server_options
@click.pass_obj
def bot(work: Backend, name: str | None, slots: int | None, how: BotOptions, server: Server) -> int:
    """Run tasks for a server until a signal ends it; what runs then is ended first."""
    if server.token is not None:
        raise click.UsageError(
            "every program on this machine can read --token of a bot, tasks included:"
            " set TASKYARD_TOKEN, or give --token-file PATH (- is stdin)"
        )
    named = name or socket.gethostname()
    target = server._replace(token=_token_of(how)).target()
    spec = BotSpec(
        url=target.url,
        token=target.token or "",
        name=named,
        slots=slots or os.cpu_count() or 1,
        state=how.state or profiles.data_folder() / "bots" / named.replace("/", "_"),
        dimensions=dimensions_of(how.dimension),
        dimensions_file=how.dimensions_file,
        once=how.once,
        inherit=how.inherit_env,
        keep_output=how.keep_output,
        user=how.user,
        ca_file=target.ca_file,
        connected=lambda pool: _say_connected(spec, pool),
    )
    try:
        return work.bot(spec)
    except StartFailed as refusal:
        print_error(f"cannot start the bot: {refusal}")
        return Exit.ERROR


def _say_connected(bot: BotSpec, pool: str) -> None:
    """Say that a bot is at work, and for whom."""
    slots = plural(bot.slots, "slot")
    print_err(f"bot {harmless(bot.name)} is connected to {harmless(bot.url)}: pool {pool}, {slots}")


def _token_of(how: BotOptions) -> str | None:
    """Read the token from where it was left for the bot alone."""
    file = how.token_file
    if file is None:
        return None
    try:
        if str(file) == "-":
            return sys.stdin.readline(TOKEN_LINE_MAX).strip()
        with file.open(encoding="utf-8") as opened:
            token = opened.readline(TOKEN_LINE_MAX).strip()
        if how.remove_token_file:
            file.unlink()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        print_error(f"cannot take the token from {file}: {reason}")
        raise CommandFailed(Exit.ERROR) from error
    return token


def _ready(output: str) -> Callable[[str, str | None], None]:
    """Make what tells that a server is there: its address, and the first token if it was just made."""

    def tell(url: str, token: str | None) -> None:
        give_address(url, token, output)
        if output == "table":
            print_err("serving; press Ctrl-C to stop")

    return tell


def give_address(url: str, token: str | None, output: str) -> None:
    """Print where a server is and a token for it; a table is lines that a shell can take as they are."""
    told = {"TASKYARD_URL": url} | ({} if token is None else {"TASKYARD_TOKEN": token})
    lines = [f"{name}={harmless(value)}" for name, value in told.items()]
    print_one({"url": url, "token": token}, output, lambda: lines, url)
