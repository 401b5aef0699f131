"""Why a task is not running, in words: one sentence for a person, from the data that `explain` found.

It has a text for every reason. Lists are cut after a few names, and the rest is counted.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType

from taskyard.core.admission.rules import Held
from taskyard.core.explain import (
    NAMED_MAX,
    Ahead,
    Bots,
    BotWord,
    Difference,
    Ending,
    Guard,
    Nearest,
    Other,
    Prerequisite,
    SliceWait,
    Standing,
    Why,
    bots,
)
from taskyard.core.fleet import BotFacts
from taskyard.core.matching import POOL, Dimensions
from taskyard.core.resources import without_marks
from taskyard.core.states import Join, Millis, Reason, State

#: The text of each reason for an end.
ENDINGS: Mapping[Reason, str] = MappingProxyType(
    {
        Reason.DONE: "done",
        Reason.REUSED: "an equal result was known",
        Reason.EXIT_CODE: "exit code {code}",
        Reason.SIGNALED: "ended by signal {signal}",
        Reason.TIMED_OUT: "timed out",
        Reason.SILENT: "printed nothing for too long",
        Reason.BAD_RESULT: "its result, progress, checkpoint or files cannot be taken",
        Reason.DENIED: "a person said no",
        Reason.GRAPH_FAILED: "the graph inside it did not finish",
        Reason.UPDATE_FAILED: "the update that it stands for did not succeed",
        Reason.BOT_LOST: "its bot was lost",
        Reason.POISON: "it was lost with one bot after the other",
        Reason.MISSING: "its playbook, inventory or files are not there",
        Reason.BOT_FAILED: "its bot could not run it",
        Reason.RETURNED: "came back before it began",
        Reason.UNRENEWED: "its bot could not renew the lease",
        Reason.EXPIRED: "waited too long for a bot",
        Reason.NO_BOT: "no bot could run it",
        Reason.DEADLINE: "its deadline passed",
        Reason.ASKED: "canceled by {actor}",
        Reason.PREREQUISITE_FAILED: "a prerequisite failed",
    }
)
#: Shells report a signal as an exit code above 128.
_SIGNAL_FROM = 128


def sentence(answer: Why, now: Millis) -> str:
    """Return the answer as one sentence."""
    return f"{answer.label} is {state_says(answer.state)}: {because(answer, now)}"


def because(answer: Why, now: Millis) -> str:
    """Return only the reason."""
    match answer.guard:
        case Guard.GRAPH:
            return _graph_says(answer)
        case Guard.ADMISSION if answer.reason is Reason.DUPLICATE_OF:
            return _duplicate_says(answer.other)
        case Guard.ADMISSION:
            return _admission_says(answer, now)
        case Guard.MATCHING:
            return _matching_says(answer, now)
        case None:
            return _state_says(answer, now)


def state_says(state: State) -> str:
    """Return the text of a state."""
    return "in error" if state is State.ERROR else state.text


def span(ms: int) -> str:
    """Return the text of a duration."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= size:
            return f"{ms // size} {unit}"
    return "a moment"


def moment(at: Millis) -> str:
    """Return the text of a time."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def ending_says(ending: Ending) -> str:
    """Return how a task ended."""
    code = ending.exit_code or 0
    said = ENDINGS.get(ending.reason, ending.reason.replace("_", " ")).format(
        code=code, signal=code - _SIGNAL_FROM if code > _SIGNAL_FROM else code, actor=ending.actor or "a person"
    )
    if ending.note:
        said = f"{said}: {ending.note}"
    where = f" in attempt {ending.attempt}" if ending.attempt else ""
    return f"{said}{where}{f' on {ending.bot}' if ending.bot else ''}"


def lacking_says(asked: Iterable[Dimensions], live: Sequence[BotFacts]) -> str:
    """Return what no live bot has for each of some ways to run a task.

    No bot is named, because a caller who may read the task may not be allowed to read the bots.
    """
    said = {_lacking_says(dimensions, bots(dimensions, live)): None for dimensions in asked}
    return names(said)


def _lacking_says(dimensions: Dimensions, found: Bots) -> str:
    if found.matching:
        return f"no bot with {wanted_says(dimensions)} takes work"
    return _lacks_says(dimensions, found)


def _lacks_says(dimensions: Dimensions, found: Bots) -> str:
    if not found.absent:
        return _together_says(dimensions)
    meant = f" (did you mean {names(key for _, key in found.meant)}?)" if found.meant else ""
    return f"no bot has {wanted_says(found.absent)}{meant}"


def differs_says(nearest: Nearest) -> str:
    """Return the nearest bot and the values it has instead of the required ones."""
    return f"{nearest.bot} ({names(map(_has_says, nearest.differs))})"


def wanted_says(dimensions: Dimensions) -> str:
    """Return what is asked for."""
    return names(f"{key}: {value}" for key, values in without_marks(dimensions) for value in values)


def names(all_names: Iterable[str], count: int | None = None) -> str:
    """List a few names, and count the others."""
    listed = list(all_names)
    shown = listed[:NAMED_MAX]
    rest = (len(listed) if count is None else max(count, len(listed))) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")


def counted(number: int, what: str) -> str:
    """Count a noun."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def other_says(other: Other | None) -> str:
    """Return the name of another task, if the caller may read it."""
    if other is None or other.id is None:
        return f"{other.label} of the same graph" if other and other.label else "a task that you may not see"
    return f"{other.label} (task {other.id} of graph {other.graph}, {state_says(other.state)})"


# The graph.


def _graph_says(answer: Why) -> str:
    named = names(map(_edge_says, answer.prerequisites), answer.unmet)
    match answer.reason:
        case Reason.PREREQUISITE if not named:
            return "the ends of its prerequisites are about to reach it"
        case Reason.PREREQUISITE:
            return f"it waits for {'one of ' if answer.join is Join.ANY else ''}{named}"
        case Reason.PREREQUISITE_FAILED:
            return f"it needs {named or 'a prerequisite that failed'}; rerun that to go on"
        case _:
            return f"its condition cannot come true after {named or 'what happened'}"


def _edge_says(one: Prerequisite) -> str:
    ended = f", {ending_says(one.ending)}" if one.ending and one.ending.reason is not Reason.DONE else ""
    return f"{one.label} ({state_says(one.state)}{ended})"


# Admission.


def _admission_says(answer: Why, now: Millis) -> str:
    held = answer.held
    if held is None:
        return "the next pass of the scheduler decides"
    match held.reason:
        case Reason.NOT_BEFORE:
            return _start_says(held.until or now, answer.again, now)
        case Reason.NO_SECRET | Reason.NO_SECRET_KEY:
            return _secret_says(held)
        case Reason.MUTEX:
            return _mutex_says(held, answer, now)
        case Reason.LIMIT:
            return f"limit {held.name} has {_use_says(held)}"
        case Reason.CAPACITY:
            return f"pool {held.name} has {_use_says(held)}{_line_says(held, answer.ahead, now)}"
        case Reason.RESERVED:
            kept = f"pool {held.name} is kept free for {other_says(answer.other)}, which has waited longer"
            return f"{kept}{_line_says(held, answer.ahead, now)}"
        case _:
            return f"it would hold its mutexes for nothing; {_no_bot_says(answer, now)}"


def _start_says(until: Millis, again: bool, now: Millis) -> str:
    return f"it {'is tried again' if again else 'may start'} in {span(until - now)}, at {moment(until)}"


def _secret_says(held: Held) -> str:
    name = f"secret {held.name}" if held.name else "the secret bytes of its request"
    if held.reason is Reason.NO_SECRET_KEY:
        return f"{name} cannot be opened: the server does not have its key; put that key back, or set it anew"
    if not held.name:
        return "its secret bytes were dropped when no bot could run it; submit the request again"
    return f"there is no {name}; set it with: taskyard secret set"


def _mutex_says(held: Held, answer: Why, now: Millis) -> str:
    other, rule = answer.other, answer.rule
    long = f" for {span(now - held.since)}" if held.since is not None else ""
    if other is not None and other.state is State.PENDING:
        before = f"{other_says(other)} comes first at mutex {held.name}, and has waited{long}"
    elif rule:
        before = f"{rule} {other_says(other)}{long}"
    else:
        before = f"mutex {held.name} is held by {other_says(other)}{long}"
    return before + _mutex_place_says(held, answer.ahead) + _passing_says(held, now)


def _mutex_place_says(held: Held, ahead: Ahead) -> str:
    """Say how many tasks wait for the mutex before it, unless it is the next one."""
    if held.place is None or (held.place == 1 and ahead.whole):
        return ""
    return f"; it is number {held.place} in line there{'' if ahead.whole else ', or further back'}"


def _passing_says(held: Held, now: Millis) -> str:
    """Whether younger tasks pass it at its mutex."""
    if held.mutex_since is None:
        return ""
    if held.stakes_at is None:
        return "; younger tasks may pass it, however long it waits"
    if held.stakes_at > now:
        return f"; younger tasks may pass it for another {span(held.stakes_at - now)}"
    return f"; it has waited for {span(now - held.mutex_since)}, and no younger task passes it any more"


def _duplicate_says(other: Other | None) -> str:
    if other is None:
        return "an equal task has ended, and its result is about to be reused"
    return f"{other_says(other)} does the same work, and its result will be reused"


def _use_says(held: Held) -> str:
    if held.used is None or held.total is None:
        return "too little left"
    return f"{held.used} of {held.total} in use, and it needs {held.need}"


def _line_says(held: Held, ahead: Ahead, now: Millis) -> str:
    long = f"; it has waited for {span(now - held.since)}" if held.since is not None else ""
    if held.place is None:
        return long
    return f"{long}; it is number {held.place} in line{'' if ahead.whole else ', or further back'}"


# Matching.


def _matching_says(answer: Why, now: Millis) -> str:
    if answer.own:
        return f"the server runs it itself; {_ahead_says(answer.ahead)}"
    found = answer.bots or Bots()
    if answer.external and answer.reason in {Reason.NO_BOT, Reason.BOTS_AWAY}:
        waits = f"it waits for the external workers of pool {answer.external}"
        return f"{waits}, and no server reaches their message broker{_slice_says(answer.slices, now)}"
    match answer.reason:
        case Reason.NO_BOT | Reason.BOTS_AWAY:
            said = _no_bot_says(answer, now)
        case Reason.BOTS_BUSY:
            said = f"{_busy_says(found, now)}; {_ahead_says(answer.ahead)}"
        case _:
            said = f"{counted(found.count(Standing.FREE), 'bot')} could run it now; {_ahead_says(answer.ahead)}"
    return said + _slice_says(answer.slices, now)


def _busy_says(found: Bots, now: Millis) -> str:
    busy = found.count(Standing.BUSY)
    if not busy:
        away = names((_word_says(one, now) for one in found.named), found.matching)
        return f"{counted(found.matching, 'bot')} could run it, but {away}"
    are = "it is" if busy == 1 else "all are"
    kept = f"; {names(found.kept)} {'is' if len(found.kept) == 1 else 'are'} kept free for it" if found.kept else ""
    return f"{counted(busy, 'bot')} could run it and {are} busy{_others_say(found, now)}{kept}"


def _no_bot_says(answer: Why, now: Millis) -> str:
    found = answer.bots or Bots()
    if found.matching:
        away = names((_word_says(one, now) for one in found.named), found.matching)
        return f"{counted(found.matching, 'bot')} could run it, but {away}"
    if found.nearest is None:
        return "there is no bot"
    if other := _of_another_pool(found.nearest):
        mine, theirs = map(names, (other.wanted, other.has))
        nearest = found.nearest.bot
        return f"no bot of pool {mine} could run it; {nearest} could, but is in pool {theirs}"
    lacks = _lacks_says(answer.dimensions, found)
    looked = "" if found.whole else f" of the first {found.known} bots"
    return f"{lacks}; the nearest{looked} is {differs_says(found.nearest)}"


def _of_another_pool(nearest: Nearest) -> Difference | None:
    """Return the difference in the pool, if the nearest bot would match but for that."""
    return nearest.differs[0] if [one.key for one in nearest.differs] == [POOL] else None


def _together_says(dimensions: Dimensions) -> str:
    return f"no one bot has all of {wanted_says(dimensions)}"


def _others_say(found: Bots, now: Millis) -> str:
    if not found.named:
        return ""
    away = found.matching - found.count(Standing.BUSY, Standing.FREE)
    return f"; {names((_word_says(one, now) for one in found.named), away)}"


def _word_says(word: BotWord, now: Millis) -> str:
    return f"{word.bot} {_standing_says(word, now)}"


def _standing_says(word: BotWord, now: Millis) -> str:
    ago = f"{span(now - word.last_seen_ms)} ago"
    return {
        Standing.QUARANTINED: f"is quarantined ({word.note})",
        Standing.MAINTENANCE: f"is in maintenance ({word.note})",
        Standing.DRAINING: "is draining",
        Standing.DEAD: f"was last seen {ago}",
        Standing.GONE: f"said goodbye {ago}",
        Standing.LEAVES: "has lost it and leaves it to others",
        Standing.RESERVED: "is kept free for another task",
    }.get(word.standing, f"is {word.standing}")


def _has_says(one: Difference) -> str:
    return f"{one.key}: {', '.join(one.has)}" if one.has else f"no {one.key}"


def _ahead_says(ahead: Ahead) -> str:
    least = "" if ahead.whole else "at least "
    return f"{least}{counted(ahead.count, 'task')} before it" if ahead.count else "it is next"


def _slice_says(slices: SliceWait | None, now: Millis) -> str:
    if slices is None or slices.count == 1:
        return ""
    at = f"; slice {slices.number} of {slices.count}"
    return at if slices.until is None else f"{at} waits for another {span(slices.until - now)}"


# What is under way, or over.


def _state_says(answer: Why, now: Millis) -> str:
    long = span(now - answer.since) if answer.since is not None else "some time"
    match answer.reason:
        case Reason.UNDER_WAY if answer.inside:
            return f"attempt {answer.attempt} is graph {answer.inside}, for {long}; ask why of that one"
        case Reason.UNDER_WAY:
            return f"attempt {answer.attempt} on {answer.bot or 'the server'} for {long}"
        case Reason.ASSIGNED:
            worker = f"an external worker of pool {answer.external}"
            where = f"waits for {worker}" if answer.external else f"is in the hands of {answer.bot}"
            return f"attempt {answer.attempt} {where} for {long}, and has not begun"
        case Reason.APPROVAL:
            left = "" if answer.until is None else f", and waits for another {span(answer.until - now)}"
            return f"a person has to approve it; it has waited for {long}{left}"
        case Reason.UPDATE:
            return f"it waits for an update, {other_says(answer.other)}, for {long}"
        case Reason.STOP_ASKED:
            return f"cancel was asked; {answer.bot or 'the server'} is ending attempt {answer.attempt}"
        case Reason.ASKED if answer.ending is None:
            return f"its graph is canceled by {answer.actor or 'a person'}, and it is about to end"
        case _:
            assert answer.ending is not None, "every ended task has a reason"
            return f"{_end_says(answer, answer.ending)}, {long} ago"


def _end_says(answer: Why, ending: Ending) -> str:
    if answer.prerequisites:
        return f"it needs {names(map(_edge_says, answer.prerequisites), answer.unmet)}"
    return ending_says(ending)
