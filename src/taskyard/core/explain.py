"""Why a task is not running: the first guard that says no, as data and as one sentence.

`why` looks at what is known about one task and finds its reason; `sentence` says it to a person. Both only look:
whoever asks changes nothing, and the answer is the rule's own, never a second opinion about it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum, unique

from taskyard.core import fleet, matching
from taskyard.core.fleet import BotFacts
from taskyard.core.graph.gate import EdgeState
from taskyard.core.matching import Dimensions, Nearest
from taskyard.core.partials import Held
from taskyard.core.words import BotId, Join, Kind, Millis, On, Reason, State

#: How many prerequisites and bots a sentence names before it only counts them.
NAMED_MAX = 3


@unique
class Guard(StrEnum):
    """Who says no."""

    GRAPH = "graph"
    ADMISSION = "admission"
    MATCHING = "matching"


@dataclass(frozen=True, slots=True)
class Prerequisite:
    """One in-edge of a task, and where the task at its other end is."""

    label: str
    state: State
    edge: EdgeState
    on: On = On.SUCCESS


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known about one task that somebody asks about."""

    label: str
    state: State
    kind: Kind = Kind.COMMAND
    prerequisites: tuple[Prerequisite, ...] = ()
    join: Join = Join.ALL
    held: Held | None = None  # what the last pass said of it
    dimensions: Dimensions = ()
    bots: tuple[BotFacts, ...] = ()  # every bot of its pool
    ahead: int = 0  # how many stand before it in its queue
    attempt: int = 0
    bot: BotId | None = None
    since: Millis | None = None  # when it came into its state
    ended: Reason | None = None  # why it ended as it did; every ended task has a reason
    note: str = ""  # what was said with that, such as the exit code


@dataclass(frozen=True, slots=True)
class Bots:
    """How the bots that match a task stand, and the nearest one when none does."""

    matching: int = 0
    free: int = 0
    busy: int = 0
    away: tuple[str, ...] = ()  # each that matches and takes no work, with the reason
    nearest: Nearest | None = None


@dataclass(frozen=True, slots=True)
class Why:
    """The answer as data; only what belongs to `reason` is filled in."""

    label: str
    state: State
    reason: Reason
    guard: Guard | None = None
    prerequisites: tuple[Prerequisite, ...] = ()
    join: Join = Join.ALL
    held: Held | None = None
    bots: Bots | None = None
    ahead: int = 0
    attempt: int = 0
    bot: BotId | None = None
    since: Millis | None = None
    note: str = ""


def why(task: Situation, now: Millis) -> Why:
    """Find the first guard that says no to a task, or what it does instead of waiting."""
    match task.state:
        case State.UNSCHEDULED | State.BLOCKED | State.SKIPPED:
            return _by_graph(task)
        case State.PENDING:
            return _by_admission(task, now)
        case State.WAITING:
            return _by_matching(task, now)
        case State.RUNNING | State.STOPPING:
            return _under_way(task)
        case _:
            assert task.ended, f"{task.label} is {task.state} and nobody said why"
            return Why(task.label, task.state, task.ended, since=task.since, note=task.note)


def sentence(answer: Why, now: Millis) -> str:
    """Say the answer in one sentence."""
    state = "in error" if answer.state is State.ERROR else answer.state
    return f"{answer.label} is {state}: {_because(answer, now)}"


def span(ms: int) -> str:
    """Say a length of time the way people do."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= size:
            return f"{ms // size} {unit}"
    return "a moment"


def _by_graph(task: Situation) -> Why:
    reason, edges = {
        State.UNSCHEDULED: (Reason.PREREQUISITE, {EdgeState.AWAITED}),
        State.BLOCKED: (Reason.PREREQUISITE_FAILED, {EdgeState.BROKEN}),
        State.SKIPPED: (Reason.CONDITION, {EdgeState.BROKEN, EdgeState.IMPOSSIBLE}),
    }[task.state]
    unmet = tuple(one for one in task.prerequisites if one.edge in edges)
    return Why(task.label, task.state, reason, Guard.GRAPH, prerequisites=unmet, join=task.join, since=task.since)


def _by_admission(task: Situation, now: Millis) -> Why:
    reason = task.held.reason if task.held else Reason.UNSEEN
    bots = _bots(task, now) if reason is Reason.NO_BOT else None
    return Why(task.label, task.state, reason, Guard.ADMISSION, held=task.held, bots=bots, since=task.since)


def _by_matching(task: Situation, now: Millis) -> Why:
    bots = _bots(task, now)
    return Why(task.label, task.state, _bots_say(bots), Guard.MATCHING, bots=bots, ahead=task.ahead, since=task.since)


def _bots_say(bots: Bots) -> Reason:
    if not bots.matching:
        return Reason.NO_BOT
    if bots.free:
        return Reason.IN_LINE
    return Reason.BOTS_BUSY if bots.busy else Reason.BOTS_AWAY


def _under_way(task: Situation) -> Why:
    stopping = task.state is State.STOPPING
    decided = Reason.APPROVAL if task.kind is Kind.APPROVAL else Reason.UNDER_WAY
    reason = Reason.STOP_ASKED if stopping else decided
    return Why(task.label, task.state, reason, attempt=task.attempt, bot=task.bot, since=task.since)


def _bots(task: Situation, now: Millis) -> Bots:
    matching_ones = [bot for bot in task.bots if matching.matches(task.dimensions, bot.dimensions)]
    if not matching_ones:
        return Bots(nearest=matching.nearest(task.dimensions, ((bot.id, bot.dimensions) for bot in task.bots)))
    taking = [bot for bot in matching_ones if fleet.takes_work(bot, now)]
    free = sum(fleet.idle_slots(bot, now) > 0 for bot in taking)
    away = tuple(f"{bot.id} {_absence(bot, now)}" for bot in matching_ones if not fleet.takes_work(bot, now))
    return Bots(len(matching_ones), free, len(taking) - free, away)


def _absence(bot: BotFacts, now: Millis) -> str:
    if not fleet.alive(bot, now):
        return f"was last seen {span(now - bot.last_seen_ms)} ago"
    if bot.quarantined is not None:
        return f"is quarantined ({bot.quarantined})"
    return f"is in maintenance ({bot.maintenance})" if bot.maintenance is not None else "is draining"


def _because(answer: Why, now: Millis) -> str:
    match answer.guard:
        case Guard.GRAPH:
            return _graph_says(answer)
        case Guard.ADMISSION:
            return _admission_says(answer, now)
        case Guard.MATCHING:
            return _matching_says(answer)
        case None:
            return _state_says(answer, now)


def _graph_says(answer: Why) -> str:
    named = _names(f"{one.label} ({one.state})" for one in answer.prerequisites) or "a prerequisite"
    match answer.reason:
        case Reason.PREREQUISITE:
            return f"it waits for {'one of ' if answer.join is Join.ANY else ''}{named}"
        case Reason.PREREQUISITE_FAILED:
            return f"it needs {named}; rerun that to go on"
        case _:
            return f"its condition cannot come true after {named}"


def _admission_says(answer: Why, now: Millis) -> str:
    held = answer.held
    if held is None:
        return "the next pass of the scheduler will judge it"
    long = span(now - held.since) if held.since is not None else "some time"
    match held.reason:
        case Reason.NOT_BEFORE:
            return f"it may start in {span((held.until or now) - now)}"
        case Reason.MUTEX:
            return f"task {held.by} has come first at mutex {held.name} for {long}"
        case Reason.LIMIT:
            return f"limit {held.name} has {_use_says(held)}"
        case Reason.CAPACITY:
            return f"pool {held.name} has {_use_says(held)}; it has waited for {long}{_place_says(held)}"
        case Reason.RESERVED:
            return f"pool {held.name} is kept free for the older task {held.by}{_place_says(held)}"
        case _:
            return f"it would hold its mutexes for nothing; {_no_bot_says(answer.bots)}"


def _use_says(held: Held) -> str:
    if held.used is None or held.total is None:
        return "too little left"
    return f"{held.used} of {held.total} in use, and it needs {held.need}"


def _place_says(held: Held) -> str:
    return f"; it is number {held.place} in line" if held.place else ""


def _matching_says(answer: Why) -> str:
    bots = answer.bots or Bots()
    match answer.reason:
        case Reason.NO_BOT | Reason.BOTS_AWAY:
            return _no_bot_says(bots)
        case Reason.BOTS_BUSY:
            return (
                f"{_count(bots.busy, 'bot')} could run it and {_all_are(bots.busy)} busy; {_ahead_says(answer.ahead)}"
            )
        case _:
            return f"{_count(bots.free, 'bot')} could run it now; {_ahead_says(answer.ahead)}"


def _no_bot_says(bots: Bots | None) -> str:
    if bots is not None and bots.away:
        return f"{_count(bots.matching, 'bot')} could run it, but {_names(bots.away)}"
    if bots is None or bots.nearest is None:
        return "there is no bot"
    lacks = _names(f"{key}: {value}" for key, values in bots.nearest.lacks for value in values)
    return f"no bot matches; the nearest is {bots.nearest.bot}, which lacks {lacks}"


def _ahead_says(ahead: int) -> str:
    return f"{_count(ahead, 'task')} before it" if ahead else "it is next"


def _state_says(answer: Why, now: Millis) -> str:
    long = span(now - answer.since) if answer.since is not None else "some time"
    match answer.reason:
        case Reason.UNDER_WAY:
            return f"attempt {answer.attempt} on {answer.bot or 'the server'} for {long}"
        case Reason.APPROVAL:
            return f"a person has to approve it; it has waited for {long}"
        case Reason.STOP_ASKED:
            return f"cancel was asked; {answer.bot or 'the server'} is ending attempt {answer.attempt}"
        case _:
            said = answer.reason.replace("_", " ")
            return f"{said} ({answer.note})" if answer.note else said


def _names(all_names: Iterable[str]) -> str:
    listed = list(all_names)
    shown, rest = listed[:NAMED_MAX], len(listed) - NAMED_MAX
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _all_are(number: int) -> str:
    return "it is" if number == 1 else "all are"
