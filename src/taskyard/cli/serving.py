"""The commands that stay: `serve`, a server, and `bot`, which runs tasks for one."""

import os
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from taskyard.cli import forms, profile, reports, spans, text
from taskyard.cli.exits import Ended, Exit
from taskyard.cli.grammar import Number, Parameter
from taskyard.cli.parsing import Unusable
from taskyard.cli.session import HERE, Server
from taskyard.cli.work import Botting, Serving, Unserved, Work

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

Port = Annotated[int, Parameter(validator=Number(gte=0, lte=65_535), help="Where to listen; 0 takes any free port.")]


#: A word of a routing key holds no dot; TaskCluster's limit leaves room for the other words.
_SCHEDULER_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,22}", re.ASCII)


def _check_scheduler_id(_: object, written: str) -> None:
    if _SCHEDULER_ID.fullmatch(written) is None:
        raise ValueError("it has 1 to 22 letters, digits, _ and -, and no dots.")


class Place(NamedTuple):
    """Where a server listens, and where it keeps things."""

    host: Annotated[str, Parameter(help="The address to listen on.")] = "127.0.0.1"
    port: Port = 8420
    database: Annotated[
        str | None, Parameter(help="sqlite:///FILE or postgresql://...; taskyard.db in the data folder unless told.")
    ] = None
    data: Annotated[Path, Parameter(help="The folder of the database file; here unless told.")] = Path()
    tls_cert: Annotated[
        Path | None, Parameter(help="Serve https with this certificate, in PEM form, its chain behind it.")
    ] = None
    tls_key: Annotated[Path | None, Parameter(help="Its key, if that is not in the same file.")] = None
    tasks_max: Annotated[
        int, Parameter(validator=Number(gte=1, lte=1_000_000), help="How many tasks one request may ask for.")
    ] = 100_000
    scheduler_id: Annotated[
        str,
        Parameter(validator=_check_scheduler_id, help="The first word of every routing key, `schedulerId` in answers."),
    ] = "taskyard"


HERE_AND_NOW: Final = Place()


class Manner(NamedTuple):
    """How a bot goes about it."""

    state: Annotated[
        Path | None, Parameter(help="A folder of its own, for what it must not forget over a restart.")
    ] = None
    once: Annotated[bool, Parameter(negative="", help="Run what is there to run, and end.")] = False
    inherit_env: Annotated[
        bool, Parameter(negative="", help="Give tasks all of this environment, not only what programs need.")
    ] = False
    keep_output: Annotated[
        Path | None,
        Parameter(help="A folder for all that a task prints beyond the first 48 MiB; the server gets the last of it."),
    ] = None
    user: Annotated[
        str | None,
        Parameter(
            help="The user as whom tasks run; needs root. Without it, a task can do whatever the bot's user can."
        ),
    ] = None
    token_file: Annotated[
        Path | None, Parameter(help="A file with the token, which nobody but the bot needs to read; - is stdin.")
    ] = None
    remove_token_file: Annotated[
        bool, Parameter(negative="", help="Remove that file once it was read, so that no task can read it.")
    ] = False


#: What a server takes.
LEASE_MIN_SECONDS: Final = 2
LEASE_MAX_SECONDS: Final = 3_600
AS_USUAL: Final = Manner()


def dimensions_of(written: list[str]) -> dict[str, list[str]]:
    """Read dimensions: `key=value`; a key that is given again has more than one value."""
    found: dict[str, list[str]] = {}
    for one in written:
        key, is_there, value = one.partition("=")
        if not (key and is_there and value):
            raise ValueError(f"{one!r} is no dimension: it looks like gpu=h100.")
        found.setdefault(key, []).append(value)
    return found


def _check_lease(_: object, written: str) -> None:
    if not LEASE_MIN_SECONDS <= spans.seconds_of(written) <= LEASE_MAX_SECONDS:
        raise ValueError(f"a lease lasts from {LEASE_MIN_SECONDS} seconds to an hour.")


def _check_dimensions(_: object, written: list[str] | None) -> None:
    dimensions_of(written or [])


class Given(NamedTuple):
    """What a bot is told that it is or has, beside what it finds out itself."""

    dimension: Annotated[
        list[str] | None,
        Parameter(validator=_check_dimensions, help="What it is or has, as key=value; as often as needed."),
    ] = None
    dimensions_file: Annotated[
        Path | None, Parameter(help="A file with a key=value on each line; a change of it takes effect at once.")
    ] = None


NOTHING_GIVEN: Final = Given()


def serve(
    *,
    place: Place = HERE_AND_NOW,
    auth: Annotated[
        bool, Parameter(negative="--no-auth", help="Ask for tokens; without, only this machine can connect.")
    ] = True,
    admin_token: Annotated[
        Path | None, Parameter(help="A file for a token that may do everything; made if it is not there.")
    ] = None,
    lease: Annotated[
        str,
        Parameter(
            validator=_check_lease,
            help="How long a bot may be silent about what it runs before that is given to another: from 2s to 1h.",
        ),
    ] = "60s",
    output: forms.Form = "table",
    work: Work,
) -> int:
    """Serve graphs and bots until a signal ends it."""
    database = place.database or f"sqlite:///{place.data / 'taskyard.db'}"
    # The folder that people are in is theirs, and stays as open as it is; the files in it do not.
    folder = place.data if place.database is None and place.data != Path() else None
    lease_ms = spans.seconds_of(lease) * 1_000
    wish = Serving(
        place.host,
        place.port,
        database,
        auth,
        admin_token,
        folder,
        place.tls_cert,
        place.tls_key,
        place.tasks_max,
        lease_ms,
        place.scheduler_id,
    )
    if place.tls_key is not None and place.tls_cert is None:
        raise Unusable("--tls-key belongs to a certificate: say --tls-cert FILE, too")
    try:
        work.serve(wish, _ready(output))
    except Unserved as refusal:
        reports.say_error(f"cannot serve: {refusal}")
        return Exit.ERROR
    return Exit.OK


def bot(
    *,
    name: Annotated[str | None, Parameter(help="Its name, its own; the machine's unless told.")] = None,
    slots: Annotated[
        int | None,
        Parameter(
            validator=Number(gte=1, lte=SLOTS_MAX),
            help="How many tasks at a time; one for each processor unless told.",
        ),
    ] = None,
    manner: Manner = AS_USUAL,
    given: Given = NOTHING_GIVEN,
    server: Server = HERE,
    work: Work,
) -> int:
    """Run tasks for a server until a signal ends it; what runs then is ended first."""
    if server.token is not None:
        raise Unusable(
            "every program on this machine can read --token of a bot, tasks included:"
            " set TASKYARD_TOKEN, or say --token-file FILE (- is stdin)"
        )
    named = name or socket.gethostname()
    target = server._replace(token=_token_of(manner)).target()
    wish = Botting(
        url=target.url,
        token=target.token or "",
        name=named,
        slots=slots or os.cpu_count() or 1,
        state=manner.state or profile.data_folder() / "bots" / named.replace("/", "_"),
        dimensions=dimensions_of(given.dimension or []),
        dimensions_file=given.dimensions_file,
        once=manner.once,
        inherit=manner.inherit_env,
        keep_output=manner.keep_output,
        user=manner.user,
        ca_file=target.ca_file,
        connected=lambda pool: _say_connected(wish, pool),
    )
    try:
        return work.bot(wish)
    except Unserved as refusal:
        reports.say_error(f"cannot be a bot: {refusal}")
        return Exit.ERROR


def _say_connected(bot: Botting, pool: str) -> None:
    """Say that a bot is at work, and for whom."""
    slots = text.many(bot.slots, "slot")
    reports.talk(f"bot {text.harmless(bot.name)} is connected to {text.harmless(bot.url)}: pool {pool}, {slots}")


def _token_of(manner: Manner) -> str | None:
    """Read the token from where it was left for the bot alone."""
    file = manner.token_file
    if file is None:
        return None
    try:
        if str(file) == "-":
            return sys.stdin.readline(TOKEN_LINE_MAX).strip()
        with file.open(encoding="utf-8") as opened:
            token = opened.readline(TOKEN_LINE_MAX).strip()
        if manner.remove_token_file:
            file.unlink()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        reports.say_error(f"cannot take the token from {file}: {reason}")
        raise Ended(Exit.ERROR) from error
    return token


def _ready(output: str) -> Callable[[str, str | None], None]:
    """Make what tells that a server is there: its address, and the first token if it was just made."""

    def tell(url: str, token: str | None) -> None:
        give_address(url, token, output)
        if output == "table":
            reports.talk("serving; Ctrl-C ends it")

    return tell


def give_address(url: str, token: str | None, output: str) -> None:
    """Print where a server is and a token for it; a table is lines that a shell can take as they are."""
    told = {"TASKYARD_URL": url} | ({} if token is None else {"TASKYARD_TOKEN": token})
    lines = [f"{name}={text.harmless(value)}" for name, value in told.items()]
    forms.give_one({"url": url, "token": token}, output, lambda: lines, url)
