"""What bots, people and the engine ask for, as data. A command may be repeated; whoever carries it out sees to that."""

from collections.abc import Callable, Collection, Iterable
from typing import Final, TypeAlias

from taskyard.core.matching import Dimensions
from taskyard.core.values import value
from taskyard.core.words import Reason, Signal

#: What an audit row is about that is about no task and no graph.
NO_SUBJECT: Final = 0
#: How the engine asks for what nobody else asks for: it names those of the tasks found that are to be dealt with.
Choose: TypeAlias = Callable[[Iterable[int]], Collection[int]]


@value
class Stats:
    """What an attempt took: milliseconds for each phase, seconds of processor, bytes."""

    prepared_ms: int | None = None
    ran_ms: int | None = None
    uploaded_ms: int | None = None
    cpu_s: float | None = None
    memory_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    truncated: bool = False  # it printed more than is kept


@value
class Report:
    """A bot's word on how an attempt ended."""

    task: int
    attempt: int
    fence: int
    signal: Signal
    reason: Reason | None = None  # where the signal does not say it all: timed out, signaled, silent
    exit_code: int | None = None
    result: str | None = None  # what the attempt published, as JSON
    stats: Stats | None = None


@value
class Renewal:
    """A bot's word that it is still at an attempt, and what the attempt says of itself, where that is new."""

    task: int
    attempt: int
    fence: int
    progress: str | None = None
    checkpoint: bytes | None = None


@value
class Begun:
    """A bot's word that an attempt which it has in hand has begun."""

    task: int
    attempt: int
    fence: int


@value
class Output:
    """A piece of what an attempt printed, and where in all of it it begins."""

    task: int
    attempt: int
    fence: int
    start: int
    body: bytes


@value
class Poll:
    """All that a bot has to say at once: results, renewals, and how much more it wants."""

    bot: str
    session: str
    poll: str = ""  # repeated, it gives the same leases
    reports: tuple[Report, ...] = ()
    renewals: tuple[Renewal, ...] = ()
    want: int = 0
    outputs: tuple[Output, ...] = ()
    waits: bool = False  # if there is nothing for it, it is answered once there is
    briefed: bool = False  # leases come with what is to be run
    pool: str | None = None  # the pool that the sender speaks for; None: any
    # What has begun and goes on, where that is new. None: this bot begins at once whatever it is given.
    begun: tuple[Begun, ...] | None = None


@value
class Hello:
    """A bot begins a session, or says what has changed about it."""

    bot: str
    session: str
    dimensions: Dimensions
    slots: int = 1
    quarantined: str | None = None
    maintenance: str | None = None
    draining: bool = False
    begun: tuple[Begun, ...] | None = None  # by the bot's lives before, in this folder; None: it does not know


@value
class Goodbye:
    """A bot ends its session and gives back what it has."""

    bot: str
    session: str
    pool: str | None = None  # the pool that the sender speaks for; None: any


@value
class Publish:
    """A running task says something of itself; what is None stays as it was."""

    task: int
    attempt: int
    fence: int
    result: str | None = None  # JSON
    progress: str | None = None
    checkpoint: bytes | None = None


@value
class Cancel:
    """A person wants work ended: one task, some tasks with everything behind them, or a whole graph."""

    task: int | None = None
    graph: int | None = None  # the whole graph, if no task is named
    subtree: bool = False
    actor: str = ""
    key: str = ""  # repeated with the same key, it gives the first answer
    tasks: tuple[int, ...] = ()  # of the graph: only these, with everything behind them


@value
class Approve:
    """A person decides about an approval that waits for one."""

    task: int
    approved: bool
    comment: str = ""
    actor: str = ""
    key: str = ""


@value
class Rerun:
    """A person wants failed work tried again: one task, or everything of a graph that failed."""

    task: int | None = None
    graph: int | None = None  # all that failed in it, if no task is named
    actor: str = ""
    key: str = ""
