"""Why a task does not run, down to the root causes: what it waits for, what that waits for, and so on.

It goes from prerequisite to prerequisite, the nearest first, through so many tasks and no more; what it did not follow
is counted. Every answer is that of `core.explain`. Nothing here writes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from taskyard.core.explain import Why, why
from taskyard.core.ids import Key, key_of, text_of
from taskyard.core.machine import ACTIVE, UNSUCCESSFUL
from taskyard.core.saying import sentence
from taskyard.core.words import Millis, Reason
from taskyard.store.connection import Txn
from taskyard.store.rows import TaskRecord
from taskyard.views import deadlock
from taskyard.views.why_facts import Facts, Sight
from taskyard.views.why_holds import with_holds
from taskyard.views.why_told import reasoned
from taskyard.wire.why import Cause, WhyView

#: How many tasks are looked at for one answer, the one that was asked about included.
LOOKED_MAX: Final = 100
#: What does not go away by itself is told first, then what takes the longest.
_PRESSING: Final = (
    Reason.NO_BOT,
    Reason.BOTS_AWAY,
    Reason.APPROVAL,
    Reason.MUTEX,
    Reason.LIMIT,
    Reason.CAPACITY,
    Reason.RESERVED,
    Reason.NOT_BEFORE,
    Reason.BOTS_BUSY,
    Reason.IN_LINE,
    Reason.UNSEEN,
)


@dataclass(frozen=True, slots=True)
class Found:
    """A task on the way, and why it does not run."""

    record: TaskRecord
    why: Why
    depth: int
    needed_by: int

    @property
    def is_root(self) -> bool:
        """Whether nothing else holds it."""
        return not self.why.prerequisites


def explained(txn: Txn, record: TaskRecord, now: Millis, sight: Sight) -> WhyView:
    """Say why a task does not run."""
    found, more = _walk(Facts(txn, now, sight), record)
    roots = sorted((one for one in found if one.is_root), key=lambda one: pressing(one.why))
    known = deadlock.of_task(txn, record, sight) if record.state in ACTIVE else None
    return WhyView(
        sentence=_whole(found[0], roots, now) + ("" if known is None else f"; {known.sentence}"),
        why=reasoned(found[0].record, found[0].why, now),
        causes=[_cause(one, now) for one in found[1:]],
        roots=sum(one.depth > 0 for one in roots),
        more=more,
        deadlock=known,
    )


def answers(facts: Facts, records: Sequence[TaskRecord]) -> list[Why]:
    """Say of each of some tasks why it does not run, and look no further."""
    known = with_holds(facts, records, facts.situations(records))
    return [why(one) for one in known]


def pressing(answer: Why) -> int:
    """Give the rank of an answer among others: what needs a person comes first."""
    if answer.state in UNSUCCESSFUL:
        return -1
    return _PRESSING.index(answer.reason) if answer.reason in _PRESSING else len(_PRESSING)


def _walk(facts: Facts, record: TaskRecord) -> tuple[list[Found], int]:
    """Go from a task to all that it hangs on, level by level; say how many prerequisites were not followed."""
    found: list[Found] = []
    needed_by = {record.id: record.id}
    level, depth, more = [record], 0, 0
    while level:
        reached = [
            Found(one, answer, depth, needed_by[one.id])
            for one, answer in zip(level, answers(facts, level), strict=True)
        ]
        found += reached
        fresh: list[int] = []
        for one in reached:
            ids = [int(key_of(edge.id)) for edge in one.why.prerequisites if edge.id]
            more += one.why.unmet - len(ids)
            for id in ids:
                if id not in needed_by:
                    needed_by[id] = one.record.id
                    fresh.append(id)
        room = LOOKED_MAX - len(found)
        more += max(0, len(fresh) - room)
        level, depth = facts.txn.tasks.look(fresh[:room]), depth + 1
    return found, more


def _whole(top: Found, roots: Sequence[Found], now: Millis) -> str:
    """Say it in one sentence, with the most pressing root cause."""
    said = sentence(top.why, now)
    below = [one for one in roots if one.depth > 0]
    if not below or (below[0].depth == 1 and below[0].why.ending is not None):
        return said  # how a prerequisite ended has been said
    root = below[0]
    where = "at the root, " if root.depth > 1 else ""
    others = len(below) - 1
    beside = f" (and {others} more root cause{'s' * (others > 1)})" if others else ""
    return f"{said}; {where}{sentence(root.why, now)}{beside}"


def _cause(one: Found, now: Millis) -> Cause:
    return Cause(one.depth, text_of(Key(one.needed_by)), one.is_root, reasoned(one.record, one.why, now))
