"""The work behind the commands, as the commands see it; the composition root brings the real thing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from taskyard.wire.api import Checkup
from taskyard.wire.progress import Observer, Outcome, Question


class Plan(Protocol):
    """A graph that is ready to run: everything that can be refused has been looked at."""

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> tuple[str, ...]: ...

    @property
    def asks(self) -> tuple[str, ...]:
        """The tasks that ask a person and wait for an answer for ever."""
        ...

    def run(
        self,
        jobs: int,
        observer: Observer,
        decide: Callable[[Question | None], bool | None],
        logs: Path | None,
        show_output: bool,
    ) -> Outcome:
        """Run it to its end, at most `jobs` tasks at a time; tell `observer` of everything, from this thread.

        `decide` is asked what tasks ask, again and again until it knows.
        If `logs` names a folder, everything that attempts print is kept there. `show_output`: the observer hears of it.
        """
        ...


@dataclass(frozen=True, slots=True)
class ServeSpec:
    """How a server is wanted."""

    host: str
    port: int  # 0: any that is free
    database: str
    authentication: bool
    admin_token: Path | None  # a file that has a token for everything, or is going to have one
    folder: Path | None = None  # of its own: made if it is not there, and for its owner alone
    tls_cert: Path | None = None  # with what it shows itself; none: plain HTTP
    tls_key: Path | None = None
    tasks_max: int | None = None  # how many tasks one request may ask for
    lease_ms: int | None = None  # how long bots may be silent about what they run
    scheduler_id: str = "taskyard"  # the first word of every routing key


@dataclass(frozen=True, slots=True)
class BotSpec:
    """How a bot is wanted."""

    url: str
    token: str = field(repr=False)
    name: str
    slots: int
    state: Path
    dimensions: Mapping[str, list[str]]
    dimensions_file: Path | None
    once: bool
    inherit: bool  # whether tasks have all of the bot's own environment
    ca_file: str | None = None  # with the certificate of who signed the server's
    keep_output: Path | None = None  # a folder for what tasks print beyond what a server gets as it is printed
    user: str | None = None  # as whom tasks run; None: as the bot does
    connected: Callable[[str], None] | None = None  # hears the pool when the server knows the bot


class StartFailed(Exception):
    """A server or a bot that cannot be; the text says why, and what helps."""


class Backend(Protocol):
    """What the commands can have done for them."""

    def plan(self, text: bytes, name: str, limits: Mapping[str, int]) -> Plan:
        """Read a document; raise `RefusedDocument` with every fault when it cannot be run.

        `limits` says how much there is of what its tasks share.
        """
        ...

    def check_up(self, database: str, repair: bool) -> Checkup:
        """Recount every number of a database, and mend what can be mended if that is wanted.

        Raise `Unchecked` when it cannot be looked at. `database` is an address, or the path of a file.
        """
        ...

    def serve(self, spec: ServeSpec, ready: Callable[[str, str | None], None]) -> None:
        """Serve until a signal ends it; tell `ready` the address, and the first token if there was none before.

        Raise `Unserved` when that cannot be.
        """
        ...

    def bot(self, spec: BotSpec) -> int:
        """Be a bot until a signal ends it, and give its exit code; raise `Unserved` when that cannot be."""
        ...
