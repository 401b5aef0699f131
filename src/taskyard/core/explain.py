"""Why a task is not running: the first guard that says no, as data.

`why` finds the reason from what is known about one task; `explain_text` makes a sentence of it. The answer comes from
the rules themselves, so it cannot differ from what they decide, and asking changes nothing.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum, unique

from taskyard.core import fleet, matching
from taskyard.core.admission.rules import Held
from taskyard.core.fleet import BotFacts
from taskyard.core.graph.gate import EdgeState, known
from taskyard.core.matching import Dimensions
from taskyard.core.states import ENDED, STOPPED, BotId, Join, Kind, Millis, On, Reason, State, TaskId

#: How many prerequisites and bots an answer names before it only counts them.
NAMED_MAX = 3


@unique
class Guard(StrEnum):
    """The guards that can hold a task."""

    GRAPH = "graph"
    ADMISSION = "admission"
    MATCHING = "matching"


@unique
class Standing(StrEnum):
    """The availability of a bot that matches a task."""

    FREE = "free"
    BUSY = "busy"
    QUARANTINED = "quarantined"
    MAINTENANCE = "maintenance"
    DRAINING = "draining"
    DEAD = "dead"  # it is silent for too long
    GONE = "gone"  # it has said goodbye
    LEAVES = "leaves"  # it has lost the task, and leaves it to another bot
    RESERVED = "reserved"  # it is kept free for another task


@dataclass(frozen=True, slots=True)
class Ending:
    """How a task ended: why, by which attempt of which bot, and who wanted it."""

    reason: Reason
    attempt: int = 0
    bot: BotId | None = None
    exit_code: int | None = None
    actor: str | None = None
    note: str = ""  # what was missing, where no bot could run it


@dataclass(frozen=True, slots=True)
class Prerequisite:
    """One in-edge of a task, and where the task at its other end is."""

    label: str
    state: State
    edge: EdgeState
    on: On = On.SUCCESS
    id: TaskId | None = None
    ending: Ending | None = None


@dataclass(frozen=True, slots=True)
class Other:
    """Another task that holds this one; if the caller may not see it, only its state is shown.

    One that is not stored yet has a label and no id.
    """

    state: State
    id: TaskId | None = None
    label: str = ""
    graph: str = ""


@dataclass(frozen=True, slots=True)
class Ahead:
    """How many tasks are before a task, as far as they were counted."""

    count: int = 0
    whole: bool = True  # False: there may be more


@dataclass(frozen=True, slots=True)
class SliceWait:
    """Which of its slices a task is on, and until when that one waits for a bot."""

    number: int  # from 1
    count: int
    until: Millis | None = None


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that is known about the task to be explained."""

    label: str
    state: State
    kind: Kind = Kind.COMMAND
    prerequisites: tuple[Prerequisite, ...] = ()
    unmet: int | None = None  # how many edges hold it, if more than are named
    join: Join = Join.ALL
    held: Held | None = None  # the hold of the last pass, as far as it is still true
    other: Other | None = None  # the task that holds this one, if any; or the update that a link stands for
    rule: str = ""  # of what is launched, that its mutex is about, in words
    dimensions: Dimensions = ()
    bots: "Bots | None" = None  # the availability of bots for it, where that matters
    own: bool = False  # the server runs it itself
    external: str = ""  # workers behind a message broker run it: their pool
    assigned: bool = False  # its bot has not begun it
    ahead: Ahead = Ahead()  # in its queue, or in the line for its pool
    slices: SliceWait | None = None
    again: bool = False  # it has been tried in this round
    ending_asked: str | None = None  # who canceled its graph, while the task is not canceled yet
    attempt: int = 0
    bot: BotId | None = None
    inside: str | None = None  # the graph that its attempt is
    until: Millis | None = None  # how long a person has to decide
    since: Millis | None = None  # when it came into its state
    ending: Ending | None = None  # how it ended; every ended task has a reason


@dataclass(frozen=True, slots=True)
class BotWord:
    """One bot that matches a task, and its availability."""

    bot: BotId
    standing: Standing
    note: str
    last_seen_ms: Millis


@dataclass(frozen=True, slots=True)
class Difference:
    """One key of the nearest bot: what is wanted of it, and what the bot has."""

    key: str
    wanted: tuple[str, ...]
    has: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Nearest:
    """The bot that comes nearest to what a task asks for, and every key that differs."""

    bot: BotId
    differs: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class Bots:
    """The availability of the bots that match a task, and the nearest one when none does."""

    known: int = 0  # how many were looked at
    whole: bool = True  # False: there are more
    standing: tuple[tuple[Standing, int], ...] = ()  # how many of those that match, by availability
    named: tuple[BotWord, ...] = ()  # some of those that match and cannot take it, the latest seen first
    absent: Dimensions = ()  # what is asked for and no bot has at all
    kept: tuple[BotId, ...] = ()  # those that are kept free for such a task
    meant: tuple[tuple[str, str], ...] = ()  # keys that no bot of the pool has, and what each probably means
    nearest: Nearest | None = None

    @property
    def matching(self) -> int:
        """How many match."""
        return sum(count for _, count in self.standing)

    def count(self, *standings: Standing) -> int:
        """Count the bots that match and have one of these availabilities."""
        return sum(count for standing, count in self.standing if standing in standings)


@dataclass(frozen=True, slots=True)
class Why:
    """The answer as data; only what belongs to `reason` is filled in."""

    label: str
    state: State
    reason: Reason
    guard: Guard | None = None
    prerequisites: tuple[Prerequisite, ...] = ()
    unmet: int = 0
    join: Join = Join.ALL
    held: Held | None = None
    other: Other | None = None
    rule: str = ""
    again: bool = False
    dimensions: Dimensions = ()
    bots: Bots | None = None
    own: bool = False
    external: str = ""
    ahead: Ahead = Ahead()
    slices: SliceWait | None = None
    attempt: int = 0
    bot: BotId | None = None
    inside: str | None = None
    until: Millis | None = None
    since: Millis | None = None
    ending: Ending | None = None
    actor: str | None = None


#: Which edges keep a task where it is, by its state, and the reason that is.
_BY_GRAPH = {
    State.UNSCHEDULED: (Reason.PREREQUISITE, frozenset({EdgeState.AWAITED})),
    State.BLOCKED: (Reason.PREREQUISITE_FAILED, frozenset({EdgeState.BROKEN})),
    State.SKIPPED: (Reason.CONDITION, frozenset({EdgeState.BROKEN, EdgeState.IMPOSSIBLE})),
    State.FAILED: (Reason.PREREQUISITE_FAILED, frozenset({EdgeState.BROKEN})),  # by its own policy
}
#: What keeps a bot from taking a task for longer than what it runs now.
AWAY = frozenset(
    {
        Standing.QUARANTINED,
        Standing.MAINTENANCE,
        Standing.DRAINING,
        Standing.DEAD,
        Standing.GONE,
        Standing.LEAVES,
        Standing.RESERVED,
    }
)


def why(task: Situation) -> Why:
    """Find the first guard that holds a task, or what it does instead of waiting."""
    if task.ending_asked is not None and task.state not in ENDED | STOPPED:
        return Why(task.label, task.state, Reason.ASKED, actor=task.ending_asked, since=task.since)
    match task.state:
        case State.UNSCHEDULED | State.BLOCKED | State.SKIPPED:
            return _by_graph(task)
        case State.PENDING:
            return _by_admission(task)
        case State.WAITING:
            return _by_matching(task)
        case State.RUNNING | State.STOPPING:
            return _under_way(task)
        case _:
            assert task.ending, f"{task.label} is {task.state} and has no reason"
            return _ended(task, task.ending)


def hangs_on(state: State, reason: str) -> frozenset[State]:
    """Return the states in which a prerequisite keeps a task in `state` for `reason`; none if it does not."""
    found = _BY_GRAPH.get(state)
    if found is None or (state in ENDED and reason != found[0]):
        return frozenset()
    return frozenset(one for one in State for on in On if known(on, one) in found[1])


def says_no(state: State, edge: EdgeState) -> bool:
    """Whether an edge is one that keeps a task in `state`."""
    return state in _BY_GRAPH and edge in _BY_GRAPH[state][1]


def bots(dimensions: Dimensions, all_bots: Sequence[BotFacts], leaves: BotId | None = None) -> Bots:
    """Return the availability of the bots that match dimensions; if none does, the nearest bot.

    `leaves` is the bot that has lost the task, when another one could try it.
    """
    fit = [bot for bot in all_bots if matching.matches(dimensions, bot.dimensions)]
    words = [_word(bot, dimensions, leaves if bot.id == leaves else None) for bot in fit]
    if not words:
        return _without_match(dimensions, all_bots)
    counted = Counter(word.standing for word in words)
    standing = tuple((one, counted[one]) for one in Standing if counted[one])
    away = sorted((word for word in words if word.standing in AWAY), key=lambda one: (-one.last_seen_ms, one.bot))
    kept = [bot.id for bot in fit if bot.kept_for == dimensions and fleet.takes_work(bot)]
    return Bots(len(all_bots), standing=standing, named=tuple(away[:NAMED_MAX]), kept=tuple(kept[:NAMED_MAX]))


def _by_graph(task: Situation) -> Why:
    reason, edges = _BY_GRAPH[task.state]
    unmet = tuple(one for one in task.prerequisites if one.edge in edges)
    count = len(unmet) if task.unmet is None else task.unmet
    return Why(
        task.label, task.state, reason, Guard.GRAPH, prerequisites=unmet, unmet=count, join=task.join, since=task.since
    )


def _by_admission(task: Situation) -> Why:
    reason = task.held.reason if task.held else Reason.UNSEEN
    found = (task.bots or Bots()) if reason is Reason.NO_BOT else None
    return Why(
        task.label,
        task.state,
        reason,
        Guard.ADMISSION,
        held=task.held,
        other=task.other,
        rule=task.rule,
        again=task.again,
        dimensions=task.dimensions,
        bots=found,
        ahead=task.ahead,
        slices=task.slices,
        since=task.since,
    )


def _by_matching(task: Situation) -> Why:
    found = None if task.own else task.bots or Bots()
    return Why(
        task.label,
        task.state,
        Reason.IN_LINE if found is None else _bots_say(found),
        Guard.MATCHING,
        dimensions=task.dimensions,
        bots=found,
        own=task.own,
        external=task.external,
        ahead=task.ahead,
        slices=task.slices,
        since=task.since,
    )


def _bots_say(found: Bots) -> Reason:
    if not found.matching:
        return Reason.NO_BOT
    if found.count(Standing.FREE):
        return Reason.IN_LINE
    return Reason.BOTS_BUSY if found.count(Standing.BUSY, Standing.RESERVED) else Reason.BOTS_AWAY


#: What running tasks of the server wait for, by kind.
_WAITS_FOR = {Kind.APPROVAL: Reason.APPROVAL, Kind.LINK: Reason.UPDATE}


def _under_way(task: Situation) -> Why:
    stopping = task.state is State.STOPPING
    running = Reason.ASSIGNED if task.assigned else Reason.UNDER_WAY
    decided = _WAITS_FOR.get(task.kind, running)
    reason = Reason.STOP_ASKED if stopping else decided
    return Why(
        task.label,
        task.state,
        reason,
        attempt=task.attempt,
        bot=task.bot,
        inside=task.inside,
        external=task.external,
        until=task.until if reason is Reason.APPROVAL else None,
        other=task.other if reason is Reason.UPDATE else None,
        since=task.since,
    )


def _ended(task: Situation, ending: Ending) -> Why:
    unmet = tuple(one for one in task.prerequisites if says_no(task.state, one.edge))
    return Why(
        task.label,
        task.state,
        ending.reason,
        prerequisites=unmet,
        unmet=len(unmet) if task.unmet is None else task.unmet,
        attempt=ending.attempt,
        bot=ending.bot,
        since=task.since,
        ending=ending,
        actor=ending.actor,
    )


# Bots.


def _word(bot: BotFacts, dimensions: Dimensions, leaves: BotId | None) -> BotWord:
    standing, note = _stands(bot, dimensions, leaves)
    return BotWord(bot.id, standing, note, bot.last_seen_ms)


def _stands(bot: BotFacts, dimensions: Dimensions, leaves: BotId | None) -> tuple[Standing, str]:
    if bot.terminated:
        return Standing.GONE, ""
    if not fleet.alive(bot):
        return Standing.DEAD, ""
    if bot.quarantined is not None:
        return Standing.QUARANTINED, bot.quarantined
    if bot.maintenance is not None:
        return Standing.MAINTENANCE, bot.maintenance
    if bot.draining or bot.ending:
        return Standing.DRAINING, ""
    if leaves is not None:
        return Standing.LEAVES, ""
    if not fleet.has_room(bot, dimensions):
        return Standing.BUSY, ""
    return (Standing.RESERVED if fleet.is_kept_from(bot, dimensions) else Standing.FREE), ""


def _without_match(dimensions: Dimensions, all_bots: Sequence[BotFacts]) -> Bots:
    has = [bot.dimensions for bot in all_bots]
    return Bots(
        len(all_bots),
        absent=matching.absent(dimensions, has),
        meant=matching.meant_keys(dimensions, has),
        nearest=_nearest(dimensions, all_bots),
    )


def _nearest(dimensions: Dimensions, all_bots: Iterable[BotFacts]) -> Nearest | None:
    """Find the bot that lacks the fewest values.

    Of equals, a live bot comes before a dead one, then one that is only in another pool, then the first by name.
    """

    def distance(bot: BotFacts) -> tuple[int, bool, bool, str]:
        lacks = matching.missing(dimensions, bot.dimensions)
        lacks_more = any(key != matching.POOL for key, _ in lacks)
        return sum(len(values) for _, values in lacks), not fleet.alive(bot), lacks_more, bot.id

    bot = min((one for one in all_bots if not one.terminated), key=distance, default=None)
    if bot is None:
        return None
    has = dict(bot.dimensions)
    lacks = matching.missing(dimensions, bot.dimensions)
    return Nearest(bot.id, tuple(Difference(key, wanted, has.get(key, ())) for key, wanted in lacks))
