"""The commands `serve`, `bot` and `celery-worker`: start a server, a bot of one, or a Celery worker of bots."""

import os
import re
import socket
import sys
from collections.abc import Callable, Iterable
from ipaddress import ip_network
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import click

from taskyard.cli import client, profiles
from taskyard.cli.client import Server
from taskyard.cli.exit_codes import CommandFailed, Exit
from taskyard.cli.options import PATH, Duration, Number, PlainText, bundle, command, duration, flag, output_option
from taskyard.cli.output import harmless, plural, print_err, print_error, print_one
from taskyard.cli.ports import Backend, BotSpec, CeleryWorkerSpec, ServeSpec, StartFailed

SERVE_EXAMPLES: Final = """\
Examples:

    taskyard serve                                  use ./taskyard.db
    taskyard serve --database postgresql://db/yard  use PostgreSQL
    taskyard serve --host 0.0.0.0 --port 80         serve other machines
    taskyard serve --files s3://yard/files          store files in a bucket
    taskyard serve --admin-token admin.token        write a token to a file
    taskyard serve --host 0.0.0.0 --tls-cert yard.pem --tls-key yard.key
    taskyard serve --database postgresql://db/yard --secrets-key-file yard.keys
    taskyard serve --amqp-file broker.url           publish events to RabbitMQ

The first start prints an admin token; use it to create all others.
"""
BOT_EXAMPLES: Final = """\
Examples:

    TASKYARD_TOKEN=ty_bot_... taskyard bot --url http://yard:8420
    taskyard bot --token-file bot.token --user taskyard-tasks
    taskyard bot --slots 4 --dimension gpu=h100 --dimension site=attic
    taskyard bot --once     run the pending tasks, then exit
    taskyard bot --check 'test $(df --output=avail / | tail -1) -gt 9999999'
    taskyard bot --engine celery --broker-file /etc/taskyard/broker
"""
WORKER_EXAMPLES: Final = """\
Examples:

    taskyard celery-worker --broker-file /etc/taskyard/broker
    TASKYARD_BROKER=redis://cache/0 taskyard celery-worker --queue builds
"""
SLOTS_MAX: Final = 1_000
#: A check that runs more often than every second is work of its own.
CHECK_EVERY: Final = Duration(1_000, 86_400_000)
#: Longer than any token, and than the URL of any broker.
TOKEN_LINE_MAX: Final = 1_024

#: A word of a routing key has no dot; the limit of TaskCluster leaves room for the other words.
_SCHEDULER_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,22}", re.ASCII)
#: The bounds that a server accepts.
LEASE_MIN_MS: Final = 2_000
LEASE_MAX_MS: Final = 3_600_000

port_option = click.option(
    "--port", type=Number(0, 65_535), default=8420, metavar="PORT", help="Port to listen on; 0 takes any free port."
)


def _check_scheduler_id(written: str) -> None:
    if _SCHEDULER_ID.fullmatch(written) is None:
        raise ValueError("must have 1 to 22 letters, digits, _ and -, and no dots")


class ServeOptions(NamedTuple):
    """Where a server listens, and where it stores its data."""

    host: str = "127.0.0.1"
    port: int = 8420
    database: str | None = None
    data: Path = Path()
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tasks_max: int = 100_000
    scheduler_id: str = "taskyard"
    files: str | None = None
    secrets_key_file: Path | None = None
    amqp: str | None = None
    amqp_file: Path | None = None
    webhook_network: tuple[str, ...] = ()
    no_sweep: bool = False
    no_events: bool = False


class BotOptions(NamedTuple):
    """How a bot runs tasks."""

    state: Path | None = None
    once: bool = False
    inherit_env: bool = False
    keep_output: Path | None = None
    user: str | None = None
    token_file: Path | None = None
    remove_token_file: bool = False
    dimension: tuple[str, ...] = ()
    dimensions_file: Path | None = None
    check: str | None = None
    check_every: int = 60_000
    cache_age: int = 14 * 86_400_000
    cache_free: int = 10
    engine: str = "local"
    engine_option: tuple[str, ...] = ()
    broker: str | None = None
    broker_file: Path | None = None
    queue: str | None = None


class WorkerOptions(NamedTuple):
    """How a Celery worker runs tasks."""

    name: str | None = None
    slots: int | None = None
    state: Path | None = None
    broker: str | None = None
    broker_file: Path | None = None
    queue: str | None = None
    ca_file: Path | None = None
    inherit_env: bool = False


broker_options = (
    click.option(
        "--broker",
        metavar="URL",
        help="Message broker of the engine celery, amqp://... or redis://..., without a password: "
        "others can read options. [TASKYARD_BROKER]",
    ),
    click.option(
        "--broker-file",
        type=PATH,
        metavar="PATH",
        help="File with the address of the message broker, which may have a password. [TASKYARD_BROKER_FILE]",
    ),
    click.option("--queue", metavar="NAME", help="Queue of the Celery workers [default: taskyard]. [TASKYARD_QUEUE]"),
)


def dimensions_of(written: Iterable[str]) -> dict[str, list[str]]:
    """Parse dimensions such as `gpu=h100`; a key can have several values."""
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
        help="Folder of the database file [default: this folder].",
    ),
    click.option("--tls-cert", type=PATH, metavar="PATH", help="Certificate (PEM) for https, followed by its chain."),
    click.option("--tls-key", type=PATH, metavar="PATH", help="Key of the certificate [default: in the same file]."),
    click.option(
        "--tasks-max",
        type=Number(1, 1_000_000),
        default=100_000,
        metavar="N",
        help="Maximum number of tasks in one request.",
    ),
    click.option(
        "--scheduler-id",
        type=PlainText(_check_scheduler_id),
        default="taskyard",
        metavar="ID",
        help="First word of all routing keys (`schedulerId`).",
    ),
    click.option(
        "--files",
        metavar="PLACE",
        help="Place of the files of tasks: a folder or s3://BUCKET/PREFIX [default: taskyard.files, by the database].",
    ),
    click.option(
        "--secrets-key-file",
        type=PATH,
        metavar="PATH",
        help="File with the keys of secrets, the same for all servers of a database "
        "[default: secrets.key beside an SQLite database].",
    ),
    click.option(
        "--amqp",
        metavar="URL",
        help="Message broker for events, such as amqp://broker/yard, without a password [env: TASKYARD_AMQP].",
    ),
    click.option("--amqp-file", type=PATH, metavar="PATH", help="File with that URL, which may have a password in it."),
    click.option(
        "--webhook-network",
        type=PlainText(ip_network),
        multiple=True,
        metavar="NETWORK",
        help="Network such as 10.0.0.0/8 that webhooks may send to, beside the public Internet; can be repeated.",
    ),
    flag("--no-sweep", help="Run admission passes only when something has changed, not every 5 seconds."),
    flag("--no-events", help="Look for background work every 5 seconds only, not when something has changed."),
)
@click.option("--auth/--no-auth", default=True, help="Require tokens; without them only this machine can connect.")
@click.option("--admin-token", type=PATH, metavar="PATH", help="File for an admin token; created if it does not exist.")
@duration(
    "--lease",
    bounds=Duration(LEASE_MIN_MS, LEASE_MAX_MS),
    default=("60s", 60_000),
    help="How long a bot may be silent before another bot gets its tasks, from 2s to 1h.",
)
@output_option("table")
@click.pass_obj
def serve(work: Backend, place: ServeOptions, auth: bool, admin_token: Path | None, lease: int, output: str) -> int:
    """Start a server; Ctrl-C stops it."""
    database = place.database or f"sqlite:///{place.data / 'taskyard.db'}"
    # A data folder of its own is made private; the current folder is not, only the files in it.
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
        place.files or ("" if database.startswith("sqlite:") else str(place.data / "taskyard.files")),
        place.secrets_key_file,
        events=not place.no_events,
        periodic_passes=not place.no_sweep,
        amqp=_broker_url(place),
        webhook_networks=place.webhook_network,
    )
    if place.no_sweep and place.no_events:
        raise click.UsageError("--no-sweep and --no-events exclude each other: nothing would admit tasks")
    if place.tls_key is not None and place.tls_cert is None:
        raise click.UsageError("--tls-key needs a certificate: add --tls-cert PATH")
    try:
        work.serve(spec, _ready(output))
    except StartFailed as refusal:
        print_error(f"cannot serve: {refusal}")
        return Exit.ERROR
    return Exit.OK


def _broker_url(place: ServeOptions) -> str:
    """Return the URL of the message broker: of an option, of a file, or of the environment."""
    if place.amqp and place.amqp_file:
        raise click.UsageError("--amqp and --amqp-file exclude each other")
    if place.amqp and urlsplit(place.amqp).password is not None:
        raise click.UsageError(
            "other programs on this machine can read the password in --amqp:"
            " write the URL to a file and use --amqp-file PATH, or set TASKYARD_AMQP"
        )
    url = place.amqp or os.environ.get("TASKYARD_AMQP", "")
    if place.amqp_file is not None:
        try:
            with place.amqp_file.open(encoding="utf-8") as opened:
                url = opened.readline(TOKEN_LINE_MAX).strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            print_error(f"cannot read the URL of the broker from {place.amqp_file}: {reason}")
            raise CommandFailed(Exit.ERROR) from error
    if url and not _is_broker(url):
        raise click.UsageError("the URL of a broker is amqp://HOST/VHOST, or amqps://... for TLS")
    return url


def _is_broker(url: str) -> bool:
    try:
        found = urlsplit(url)
        return found.scheme in {"amqp", "amqps"} and bool(found.hostname) and found.port != 0
    except ValueError:  # of the port
        return False


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
    click.option(
        "--state", type=PATH, metavar="DIR", help="State folder, used by this bot only; it must survive restarts."
    ),
    flag("--once", help="Run the tasks that are pending, then exit."),
    flag("--inherit-env", help="Pass the whole environment to tasks, not only the basics."),
    click.option(
        "--keep-output",
        type=PATH,
        metavar="DIR",
        help="Folder for output beyond the first 48 MiB of a task, of which the server gets only the end.",
    ),
    click.option(
        "--user",
        metavar="USER",
        help="User to run tasks as; needs root. By default tasks have all rights of the bot.",
    ),
    click.option("--token-file", type=PATH, metavar="PATH", help="File with the token; - reads standard input."),
    flag("--remove-token-file", help="Delete the token file after reading it, so that no task can read it."),
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
    click.option(
        "--check",
        metavar="COMMAND",
        help="Shell command that fails while this machine is unfit; the bot takes no work then.",
    ),
    duration("--check-every", bounds=CHECK_EVERY, default=("60s", 60_000), help="How often to run the check."),
    duration("--cache-age", default=("14d", 14 * 86_400_000), help="Remove caches that are not used for so long."),
    click.option(
        "--cache-free",
        type=Number(0, 100),
        metavar="PERCENT",
        default=10,
        show_default=True,
        help="Remove caches until so much of the disk is free.",
    ),
    click.option(
        "--engine",
        metavar="NAME",
        default="local",
        show_default=True,
        help="What runs tasks: local for processes of this machine, celery for Celery workers, or another one.",
    ),
    click.option(
        "--engine-option",
        multiple=True,
        type=PlainText(lambda written: dimensions_of([written])),
        metavar="KEY=VALUE",
        help="Option of another engine; can be repeated.",
    ),
    *broker_options,
)
@client.server_options
@click.pass_obj
def bot(work: Backend, name: str | None, slots: int | None, how: BotOptions, server: Server) -> int:
    """Start a bot, which runs tasks for a server; Ctrl-C stops its tasks and then the bot."""
    if server.token is not None:
        raise click.UsageError(
            "other programs on this machine, also tasks, can read --token of a bot:"
            " set TASKYARD_TOKEN, or use --token-file PATH (- reads stdin)"
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
        check=how.check,
        check_every_s=how.check_every / 1_000,
        cache_age_s=how.cache_age / 1_000,
        cache_free_percent=how.cache_free,
        ca_file=target.ca_file,
        connected=lambda pool: _say_connected(spec, pool),
        engine=how.engine,
        engine_options=_engine_options(how),
    )
    try:
        return work.bot(spec)
    except StartFailed as refusal:
        print_error(f"cannot start the bot: {refusal}")
        return Exit.ERROR


@command("celery-worker", WORKER_EXAMPLES)
@bundle(
    "how",
    WorkerOptions,
    click.option("--name", metavar="NAME", help="Unique name of the worker [default: taskyard-PID@HOSTNAME]."),
    click.option(
        "--slots",
        type=Number(1, SLOTS_MAX),
        metavar="N",
        help="Number of tasks to run at a time [default: the number of processors].",
    ),
    click.option("--state", type=PATH, metavar="DIR", help="Folder for working folders and caches of tasks."),
    *broker_options,
    click.option("--ca-file", type=PATH, metavar="PATH", help="Certificate of the authority of the server."),
    flag("--inherit-env", help="Pass the whole environment to tasks, not only the basics."),
)
@click.pass_obj
def celery_worker(work: Backend, how: WorkerOptions) -> int:
    """Start a Celery worker, which runs tasks of bots with the engine celery; Ctrl-C lets its tasks finish."""
    broker = _broker(how.broker, how.broker_file)
    if broker is None:
        raise click.UsageError("there is no broker: set TASKYARD_BROKER, or add --broker-file PATH or --broker URL")
    spec = CeleryWorkerSpec(
        broker=broker,
        queue=how.queue or os.environ.get("TASKYARD_QUEUE") or "taskyard",
        name=how.name or f"taskyard-{os.getpid()}@{socket.gethostname()}",
        slots=how.slots or os.cpu_count() or 1,
        state=how.state or profiles.data_folder() / "celery-workers",
        ca_file=None if how.ca_file is None else str(how.ca_file),
        inherit=how.inherit_env,
    )
    try:
        return work.celery_worker(spec)
    except StartFailed as refusal:
        print_error(f"cannot start the worker: {refusal}")
        return Exit.ERROR


def _engine_options(how: BotOptions) -> dict[str, str]:
    """Return the options of an engine; the engine celery gets the broker."""
    options = {key: values[-1] for key, values in dimensions_of(how.engine_option).items()}
    if how.engine == "celery":
        named = {"broker": _broker(how.broker, how.broker_file), "queue": how.queue or os.environ.get("TASKYARD_QUEUE")}
        return options | {key: value for key, value in named.items() if value}
    if how.broker or how.broker_file or how.queue:
        raise click.UsageError("--broker, --broker-file and --queue need --engine celery")
    return options


def _broker(url: str | None, file: Path | None) -> str | None:
    """Return the address of the broker: from an option, a file, or the environment."""
    named = os.environ.get("TASKYARD_BROKER_FILE")
    if url is None and file is None and "TASKYARD_BROKER" in os.environ:
        return os.environ["TASKYARD_BROKER"]
    if url is not None:
        if urlsplit(url).password:
            raise click.UsageError(
                "other programs on this machine, also tasks, can read a password in --broker:"
                " set TASKYARD_BROKER, or use --broker-file PATH"
            )
        return url
    path = file or (Path(named) if named else None)
    return None if path is None else _first_line(path, "the broker")


def _say_connected(bot: BotSpec, pool: str) -> None:
    """Say that a bot is connected, and to which server."""
    slots = plural(bot.slots, "slot")
    print_err(f"bot {harmless(bot.name)} is connected to {harmless(bot.url)}: pool {pool}, {slots}")


def _token_of(how: BotOptions) -> str | None:
    """Read the token from a file or standard input."""
    file = how.token_file
    return None if file is None else _first_line(file, "the token", remove=how.remove_token_file)


def _first_line(file: Path, what: str, *, remove: bool = False) -> str:
    """Read the first line of a file, or of standard input."""
    try:
        if str(file) == "-":
            return sys.stdin.readline(TOKEN_LINE_MAX).strip()
        with file.open(encoding="utf-8") as opened:
            line = opened.readline(TOKEN_LINE_MAX).strip()
        if remove:
            file.unlink()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        print_error(f"cannot read {what} from {file}: {reason}")
        raise CommandFailed(Exit.ERROR) from error
    return line


def _ready(output: str) -> Callable[[str, str | None], None]:
    """Make the function that prints the address of a ready server, and the first token if there is one."""

    def print_ready(url: str, token: str | None) -> None:
        print_address(url, token, output)
        if output == "table":
            print_err("serving; press Ctrl-C to stop")

    return print_ready


def print_address(url: str, token: str | None, output: str) -> None:
    """Print the address of a server and a token; the table is lines that a shell can evaluate."""
    variables = {"TASKYARD_URL": url} | ({} if token is None else {"TASKYARD_TOKEN": token})
    lines = [f"{name}={harmless(value)}" for name, value in variables.items()]
    print_one({"url": url, "token": token}, output, lambda: lines, url)
