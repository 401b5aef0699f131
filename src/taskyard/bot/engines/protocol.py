"""What an engine does for a bot, and what the bot gives it.

The bot leases attempts, renews their leases, and reports what becomes of them; its engine runs them, here or elsewhere.
An engine is found by its name among the entry points of the group `taskyard.engines`, and is made with an `EngineHost`.
All of its methods are called on the event loop of the bot, and none may block it.

The rule that every engine keeps: nothing of an attempt runs after `attempt.until`, which moves only with `extend`. It
holds also if the bot is frozen, killed or cut off, so something beside the attempt has to enforce it. Attempts whose
`strict` is false are the exception.

`conformance.py` has tests for engines.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Final, NamedTuple, Protocol

from taskyard.bot.attempts import LeasedAttempt, LeasedAttempts
from taskyard.bot.config import BotConfig, Dimensions
from taskyard.bot.output_spool import Spool, rest_file_name
from taskyard.bot.prefetch import PrefetchLimit
from taskyard.bot.state_folder import StateFolder
from taskyard.wire.bot_protocol import Lease, Report, Welcome

#: The group of entry points.
GROUP: Final = "taskyard.engines"
#: The engine that runs attempts as processes of this machine.
LOCAL: Final = "local"


class EngineUnusable(Exception):
    """An engine does not exist, or cannot work as it was started; the text says what to do."""


class Adoptable(NamedTuple):
    """Attempts of earlier instances of a bot that may still run."""

    session: str = ""  # the last session that had them
    leases: Sequence[Lease] = ()  # with the fences of their claims


class Engine(Protocol):
    """What runs the attempts of one instance of a bot."""

    @property
    def capacity(self) -> int:
        """How many attempts it can run at once now; 0 while it can run none."""

    @property
    def caches_held(self) -> "Callable[[], tuple[str, ...] | None] | None":
        """What returns the caches it holds, if these have changed; None for an engine that places none."""

    def dimensions(self) -> Dimensions:
        """Return the dimensions of the machines on which attempts run."""

    async def open(self) -> None:
        """Make ready. From now on nothing of an earlier instance runs, except for what `adopt` returns."""

    @property
    def outlives_bot(self) -> bool:
        """Whether attempts can go on when the bot has ended, until their leases are over."""

    def adopt(self) -> "Adoptable":
        """Return the attempts of earlier instances that may still run."""

    def welcomed(self, welcome: Welcome, adopted: Sequence[LeasedAttempt]) -> None:
        """Take over what the server says; go on with these attempts, and end all others that were to be adopted.

        `adopted` has something only in the first call.
        """

    def start(self, attempts: Sequence[LeasedAttempt]) -> None:
        """Run these as there is room: tell `begun`, `output` and `ended` of the host."""

    def extend(self, attempts: Sequence[LeasedAttempt]) -> None:
        """Let these run until their new `until`."""

    def cancel(self, attempt: LeasedAttempt, why: str) -> None:
        """End an attempt within the grace of its payload; `ended` is told then.

        `stop`: a person asked for it, or the server has given it to another bot; `lose`: the bot ends.
        """

    def poll(self, now: float) -> None:
        """Look after everything; called 20 times a second while attempts are in hand, and else once a second."""

    def cancel_all(self) -> None:
        """Kill everything at once, without grace, and tell that it is lost."""

    async def close(self) -> None:
        """Let go of everything."""


class BotControl(Protocol):
    """What an engine can change about its bot."""

    def on_change(self) -> None:
        """There is something to send to the server."""

    def report_trouble(self, text: str, attempt: LeasedAttempt | None = None) -> None:
        """Report a problem of the bot itself."""

    def on_lost(self) -> None:
        """An attempt was lost, or could not begin, through a fault of this machine."""

    def maintain(self, why: str | None) -> None:
        """Take no work for now, because of this; None: take work again."""

    def refresh(self) -> None:
        """Tell the server the current capacity and dimensions, and ask for as much work: never before `welcomed`."""

    def fail(self) -> None:
        """End the bot: its engine cannot go on."""


class EngineHost:
    """The bot, as its engine sees it."""

    def __init__(
        self,
        config: BotConfig,
        state: StateFolder,
        session: str,
        attempts: LeasedAttempts,
        prefetch: PrefetchLimit,
        control: BotControl,
    ) -> None:
        self.config = config
        self.state = state
        self.session = session  # of this instance; what is before the slash names the folder on this machine
        self.attempts = attempts
        self.prefetch = prefetch  # learns how long attempts take
        self.control = control

    def begun(self, attempt: LeasedAttempt) -> None:
        """Tell that an attempt has begun."""
        if attempt.began is None:
            attempt.began = time.monotonic()
            self.attempts.mark_begun([attempt])
        self.attempts.queue_begun(attempt, time.monotonic())
        self.control.on_change()

    def output(self, attempt: LeasedAttempt, body: bytes) -> None:
        """Tell what an attempt printed; the bot keeps as much as the limit of an attempt allows."""
        if attempt.report is None:
            spool = attempt.spool or self.new_spool(attempt)
            self.attempts.add_output(attempt, spool, body, time.monotonic())
            self.control.on_change()

    def ended(self, attempt: LeasedAttempt, report: Report) -> None:
        """Tell how an attempt ended, once: nothing of it runs any more, and all of its output was told."""
        if attempt.spool is not None:
            attempt.ended = time.monotonic()
            attempt.spool.finish()
        self.attempts.finish(attempt, report)
        self.control.on_change()

    def new_spool(self, attempt: LeasedAttempt) -> Spool:
        """Make what keeps the output of an attempt until it is sent."""
        folder, lease = self.config.keep_output, attempt.lease
        whole = None if folder is None else folder / rest_file_name(lease.task, lease.attempt)
        return Spool(self.state.work / f"{attempt.run}.output", self.config.output_max, whole)


def make_engine(name: str, host: EngineHost) -> Engine:
    """Make the engine of a name; raise `EngineUnusable` if there is none, or it cannot work."""
    if name == LOCAL:
        from taskyard.bot.engines.local import LocalEngine  # noqa: PLC0415 - no search: nearly every bot has it

        return LocalEngine(host)
    found = {one.name: one for one in entry_points(group=GROUP)}
    if name not in found:
        raise EngineUnusable(f"there is no engine {name!r}; installed are {', '.join(sorted({LOCAL, *found}))}")
    try:
        made = found[name].load()
    except ImportError as error:
        raise EngineUnusable(f"the engine {name!r} cannot be loaded: {error}") from error
    engine: Engine = made(host)
    return engine


def option(options: Mapping[str, str], name: str, known: Collection[str]) -> str | None:
    """Return an option of an engine; raise `EngineUnusable` if there are options that it does not know."""
    if unknown := sorted(set(options) - set(known)):
        raise EngineUnusable(f"this engine has no option {unknown[0]!r}; it knows {', '.join(sorted(known))}")
    return options.get(name)
