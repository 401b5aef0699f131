"""An answer of `core.explain` as it is told outside: ids as text, words as words, and the sentence beside the data."""

from taskyard.core.explain import Bots, Guard, Other, Prerequisite, SliceWait, Why
from taskyard.core.ids import Key, text_of
from taskyard.core.matching import Dimensions
from taskyard.core.saying import ending_says, sentence
from taskyard.core.words import Millis, Reason
from taskyard.store.rows import TaskRecord
from taskyard.wire.why import (
    Reasoned,
    WhyBot,
    WhyBots,
    WhyDifference,
    WhyNearest,
    WhyOther,
    WhyPrerequisite,
    WhySlice,
)


def reasoned(record: TaskRecord, answer: Why, now: Millis) -> Reasoned:
    """Tell why one task does not run."""
    held, ending = answer.held, answer.ending
    is_mutex = held is not None and held.reason is Reason.MUTEX
    return Reasoned(
        task=text_of(Key(record.id)),
        graph_id=text_of(Key(record.graph)),
        label=answer.label,
        state=answer.state.text,
        reason=answer.reason.text,
        guard=None if answer.guard is None else answer.guard.value,
        sentence=sentence(answer, now),
        since_ms=answer.since,
        prerequisites=[_prerequisite(one) for one in answer.prerequisites],
        unmet=answer.unmet,
        name=held.name if held else None,
        other=None if answer.other is None else other_told(answer.other),
        other_since_ms=held.since if held and is_mutex else None,
        waits_since_ms=None if is_mutex or held is None else held.since,
        mutex_since_ms=held.mutex_since if held else None,
        stakes_ms=held.stakes_at if held else None,
        used=held.used if held else None,
        total=held.total if held else None,
        need=held.need if held else None,
        place=held.place if held else None,
        until_ms=held.until if held else answer.until,
        dimensions=dimensions_told(answer.dimensions),
        bots=None if answer.bots is None else bots_told(answer.bots),
        ahead=None if answer.guard in (None, Guard.GRAPH) else answer.ahead.count,
        ahead_whole=answer.ahead.whole,
        slice=None if answer.slices is None else _slice(answer.slices),
        attempt=answer.attempt or None,
        bot=answer.bot,
        graph_inside=answer.inside,
        exit_code=None if ending is None else ending.exit_code,
        actor=answer.actor or None,
    )


def bots_told(bots: Bots) -> WhyBots:
    """Tell how bots stand."""
    near = bots.nearest
    return WhyBots(
        known=bots.known,
        whole=bots.whole,
        matching=bots.matching,
        standing={standing.value: count for standing, count in bots.standing},
        named=[WhyBot(one.bot, one.standing.value, one.note, one.last_seen_ms) for one in bots.named],
        absent=dimensions_told(bots.absent),
        nearest=None
        if near is None
        else WhyNearest(near.bot, [WhyDifference(one.key, list(one.wanted), list(one.has)) for one in near.differs]),
    )


def dimensions_told(dimensions: Dimensions) -> dict[str, list[str]]:
    """Tell what is asked for."""
    return {key: list(values) for key, values in dimensions}


def _prerequisite(one: Prerequisite) -> WhyPrerequisite:
    ended = None if one.ending is None else ending_says(one.ending)
    return WhyPrerequisite(one.id or "", one.label, one.state.text, one.on.text, ended)


def other_told(other: Other) -> WhyOther:
    """Tell of another task that is in the way."""
    return WhyOther(other.id, other.label, other.graph, other.state.text)


def _slice(one: SliceWait) -> WhySlice:
    return WhySlice(one.number, one.count, one.until)
