"""Why tasks do not run, as JSON: the answers of the server about one task or a whole graph.

Plain dataclasses, as in `wire/api.py`. What does not belong to a reason is null or empty. Lists are cut after a few
items; a number beside each says how many there are.
"""

from dataclasses import dataclass, field
from typing import Final

from taskyard.wire.api import Deadlock


@dataclass(frozen=True, slots=True)
class WhyPrerequisite:
    """A prerequisite that holds a task, and its state."""

    task: str
    label: str
    state: str
    on: str
    ending: str | None  # how it ended, in words


@dataclass(frozen=True, slots=True)
class WhyOther:
    """Another task that holds this one; if the caller may not read it, only its state is shown."""

    task: str | None
    label: str
    graph_id: str
    state: str


@dataclass(frozen=True, slots=True)
class WhyBot:
    """A bot that matches and cannot take the task."""

    bot: str
    standing: str  # quarantined, maintenance, draining, dead, gone, leaves, reserved
    note: str
    last_seen_ms: int


@dataclass(frozen=True, slots=True)
class WhyDifference:
    """One key of the nearest bot: what is wanted, and what the bot has."""

    key: str
    wanted: list[str]
    has: list[str]


@dataclass(frozen=True, slots=True)
class WhyNearest:
    """The bot that comes nearest, and every key that differs."""

    bot: str
    differs: list[WhyDifference]


@dataclass(frozen=True, slots=True)
class WhyBots:
    """The availability of the bots that match, and the nearest one when none does."""

    known: int  # how many were looked at
    whole: bool  # whether these are all
    matching: int
    standing: dict[str, int]  # how many of those that match, by availability
    named: list[WhyBot]
    absent: dict[str, list[str]]  # what is asked for and no bot has at all
    nearest: WhyNearest | None
    kept: list[str] = field(default_factory=list)  # some of those that are kept free for such a task
    meant: dict[str, str] = field(default_factory=dict)  # keys that no bot of the pool has, and what was probably meant


@dataclass(frozen=True, slots=True)
class WhySlice:
    """Which of its slices a task is on, and until when that one waits for a bot."""

    number: int
    count: int
    until_ms: int | None


@dataclass(frozen=True, slots=True)
class Reasoned:
    """One task, the first guard that holds it, and everything about that."""

    task: str
    graph_id: str
    label: str
    state: str
    reason: str
    guard: str | None  # graph, admission, matching; null for a task that runs or has ended
    sentence: str
    since_ms: int | None  # when it came into its state
    prerequisites: list[WhyPrerequisite] = field(default_factory=list)
    unmet: int = 0  # how many prerequisites hold it
    name: str | None = None  # of the mutex, the limit or the pool
    other: WhyOther | None = None  # who holds that, or comes first
    other_since_ms: int | None = None
    waits_since_ms: int | None = None  # since when it waits for its pool
    mutex_since_ms: int | None = None  # since a mutex first held it
    stakes_ms: int | None = None  # from when no younger task passes it at the mutex that holds it; null: never
    used: int | None = None
    total: int | None = None
    need: int | None = None
    place: int | None = None  # in the line for its pool or at its mutex, from 1
    until_ms: int | None = None  # when a start that is too early, or a person's time to decide, is over
    dimensions: dict[str, list[str]] = field(default_factory=dict)
    bots: WhyBots | None = None
    ahead: int | None = None  # how many tasks are before it
    ahead_whole: bool = True  # whether all of them were counted
    slice: WhySlice | None = None
    attempt: int | None = None
    bot: str | None = None
    graph_inside: str | None = None  # the graph that its attempt is
    exit_code: int | None = None
    actor: str | None = None  # who canceled it


@dataclass(frozen=True, slots=True)
class Cause:
    """A task between the explained one and a root cause."""

    depth: int  # 1: a prerequisite of the task itself
    needed_by: str  # the task that it was found for
    root: bool  # nothing else holds it
    why: Reasoned


@dataclass(frozen=True, slots=True)
class WhyView:
    """Why a task does not run: as a sentence, as data, and with all tasks it depends on, the nearest first."""

    sentence: str
    why: Reasoned
    causes: list[Cause]
    roots: int  # how many of them are root causes
    more: int  # how many prerequisites were not followed
    deadlock: Deadlock | None = None  # workflows that wait for each other keep it from its end


@dataclass(frozen=True, slots=True)
class WhyGroup:
    """Tasks of a graph that are held by the same thing."""

    state: str
    reason: str
    count: int
    sentence: str
    tasks: dict[str, str]  # some of them: label -> id
    example: Reasoned  # one of them


@dataclass(frozen=True, slots=True)
class WhyGraphView:
    """What holds a graph: its root causes, the most pressing first."""

    graph_id: str
    name: str
    state: str
    settled: bool
    sentence: str
    groups: list[WhyGroup]
    behind: int  # tasks that wait for others
    whole: bool  # whether every task that could be a root cause was looked at
    deadlock: Deadlock | None = None  # workflows that wait for each other keep it from its end


# The dry run of a graph, as JSON. Plain dataclasses, as in `wire/api.py`.


#: The forecast for a task: it begins at once, waits for something, comes after others, or no bot can run it.
NOW: Final = "now"
WAITS: Final = "waits"
AFTER: Final = "after"
NEVER: Final = "never"
VERDICTS: Final = (NEVER, WAITS, NOW, AFTER)


@dataclass(frozen=True, slots=True)
class DryTask:
    """One task: when it would run, and why; what does not belong to its reason is null or empty."""

    label: str
    verdict: str  # now, waits, after, never
    reason: str
    sentence: str
    after: list[str] = field(default_factory=list)  # some of the labels that it requires
    slice: int = 1  # the slice it would begin with
    dimensions: dict[str, list[str]] = field(default_factory=dict)
    bots: WhyBots | None = None
    name: str | None = None  # of the mutex, the limit or the pool
    other: WhyOther | None = None
    used: int | None = None
    total: int | None = None
    need: int | None = None
    place: int | None = None
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class DryRun:
    """The dry run of a graph; nothing was stored."""

    name: str
    tasks: int
    sentence: str
    counts: dict[str, int]  # how many tasks have each verdict
    items: list[DryTask]  # those that no bot can run first, then in the order of the document
    more: int  # how many are not listed
    whole: bool  # whether every task that is pending now was taken into account
