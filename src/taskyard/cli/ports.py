"""Interfaces of what commands need from the server, the bot and the engine; `taskyard.main` implements them."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from taskyard.cli.progress import WatchedGraph
from taskyard.wire.api import Checkup
from taskyard.wire.progress import Decide, Outcome


class LocalGraph(WatchedGraph, Protocol):
    """A graph that runs in this process; watching it carries it on."""

    def outcome(self) -> Outcome:
        """Return how it ended, once watching it is over."""
        ...


class Plan(Protocol):
    """A validated graph that is ready to run."""

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> tuple[str, ...]: ...

    @property
    def asks(self) -> tuple[str, ...]:
        """The approvals of the graph that have no timeout."""
        ...

    def start(
        self, jobs: int, decide: Decide, logs: Path | None, show_output: bool, outputs: Path | None = None
    ) -> AbstractContextManager[LocalGraph]:
        """Run the graph, at most `jobs` tasks at a time; raise `StartFailed` if that is not possible.

        `decide` answers approvals.
        The folder `outputs`, if given, gets the output files of tasks at the end.
        The folder `logs`, if given, gets all output of tasks. With `show_output` the output is part of the news.
        """
        ...


@dataclass(frozen=True, slots=True)
class ServeSpec:
    """How to start a server."""

    host: str
    port: int  # 0: any free port
    database: str
    authentication: bool
    admin_token: Path | None  # file with an admin token; created if it does not exist
    folder: Path | None = None  # data folder; created if it does not exist, and readable by its owner only
    tls_cert: Path | None = None  # certificate; without one, plain HTTP
    tls_key: Path | None = None
    tasks_max: int | None = None  # maximum number of tasks in one request
    lease_ms: int | None = None  # how long bots may be silent
    scheduler_id: str = "taskyard"  # the first word of every routing key
    files: str = ""  # where files of tasks are kept: a folder or s3://BUCKET/PREFIX; empty: beside the database file
    secrets_key_file: Path | None = None  # with the keys of secrets; none: beside an SQLite database
    events: bool = True  # background work begins when a commit causes it, not only every few seconds
    webhook_networks: tuple[str, ...] = ()  # not of the Internet, in which webhooks may have receivers
    periodic_passes: bool = True  # admission passes also run every few seconds
    amqp: str = field(default="", repr=False)  # URL of the message broker that gets events; empty: none


@dataclass(frozen=True, slots=True)
class BotSpec:
    """How to start a bot."""

    url: str
    token: str = field(repr=False)
    name: str
    slots: int
    state: Path
    dimensions: Mapping[str, list[str]]
    dimensions_file: Path | None
    once: bool
    inherit: bool  # whether tasks get the whole environment of the bot
    ca_file: str | None = None  # certificate of the authority that signed the certificate of the server
    keep_output: Path | None = None  # folder for output beyond the part that the server gets at once
    user: str | None = None  # user to run tasks as; None: the user of the bot
    check: str | None = None  # command that fails while the machine is unfit
    check_every_s: float = 60.0
    cache_age_s: float = 14 * 86_400.0  # after how long without use a cache is removed
    cache_free_percent: int = 10  # caches are removed until so much of the disk is free
    connected: Callable[[str], None] | None = None  # called with the pool when the bot is connected
    engine: str = "local"  # what runs attempts
    engine_options: Mapping[str, str] = field(
        default_factory=dict, repr=False
    )  # the address of a broker has a password


@dataclass(frozen=True)
class CeleryWorkerSpec:
    """How to start a Celery worker."""

    broker: str = field(repr=False)
    queue: str
    name: str
    slots: int
    state: Path
    ca_file: str | None
    inherit: bool


@dataclass(frozen=True, slots=True)
class BackupSpec:
    """A database, the archive of its backup, and what belongs to both."""

    database: str  # an address, or the path of a file; empty: none
    archive: Path
    files: str | None = None  # where files of tasks are kept; None: beside a database file
    no_files: bool = False  # whether they are left out
    secrets_key_file: Path | None = None  # with the keys of secrets; None: beside a database file
    include_keys: bool = False  # whether the keys are part of the backup


@dataclass(frozen=True, slots=True)
class ArchiveSummary:
    """What an archive has."""

    taken_ms: int
    taskyard: str  # the version of the program that made it
    schema: str
    tables: int
    rows: int
    has_files: bool
    files: int
    file_bytes: int
    missing: int  # how many trees and chunks it should have and has not
    missing_named: tuple[str, ...]
    has_secrets: bool
    has_keys: bool


@dataclass(frozen=True, slots=True)
class TableMoved:
    """A table that was moved; the digest is that of the rows on both sides."""

    name: str
    rows: int
    digest: str


class StartFailed(Exception):
    """A server, a bot, a run or a backup cannot start; the text says why, and what helps."""


class Backend(Protocol):
    """What commands can do in this process."""

    def plan(self, text: bytes, name: str, limits: Mapping[str, int]) -> Plan:
        """Validate a document; raise `RefusedDocument` with all its faults if it has any.

        `limits` has the totals of named limits.
        """
        ...

    def check_up(self, database: str, repair: bool) -> Checkup:
        """Check a database, and repair it with `repair`; raise `Unchecked` if it cannot be checked.

        `database` is an address, or the path of a file.
        """
        ...

    def back_up(self, spec: BackupSpec, show: Callable[[str, int, int], None]) -> ArchiveSummary:
        """Write a backup; `show` is called with what is done, how much of it, and of how much.

        Raise `StartFailed` when that cannot be.
        """
        ...

    def restore(self, spec: BackupSpec, show: Callable[[str, int, int], None]) -> ArchiveSummary:
        """Restore a backup, or only check it if the spec has no database; raise `StartFailed` when that cannot be."""
        ...

    def move_store(self, source: str, target: str, show: Callable[[str, int, int], None]) -> list[TableMoved]:
        """Move a database; raise `StartFailed` when that cannot be."""
        ...

    def add_secret_key(self, file: Path) -> str:
        """Put a new key before the keys of secrets in a file, which is made if need be; return the id of the key.

        Raise `StartFailed` when that cannot be.
        """
        ...

    def serve(self, spec: ServeSpec, ready: Callable[[str, str | None], None]) -> None:
        """Serve until a signal; call `ready` with the address, and with the first token if there was none.

        Raise `StartFailed` if that is not possible.
        """
        ...

    def bot(self, spec: BotSpec) -> int:
        """Run a bot until a signal and return its exit code; raise `StartFailed` if that is not possible."""
        ...

    def celery_worker(self, spec: CeleryWorkerSpec) -> int:
        """Run a Celery worker until a signal and return its exit code; raise `StartFailed` if that is not possible."""
        ...
