"""What the last pass said of pending tasks, as far as it still is so, with the figures that change all the time.

A mutex that was given back meanwhile, or a pool that has room again, is for the next pass to say: then nothing is said
here. The rule is that of `core.admission`. Nothing here writes.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from taskyard.core import fleet
from taskyard.core.admission import FOR_CAPACITY, carries, stakes_at
from taskyard.core.explain import Ahead, Situation
from taskyard.core.ids import Key, text_of
from taskyard.core.machine import ENDED, HOLDING, sources
from taskyard.core.partials import Held
from taskyard.core.words import Reason, Signal, TaskId
from taskyard.store.records import TaskRecord
from taskyard.store.verbs.explaining import Turn
from taskyard.store.verbs.passes import HoldRow
from taskyard.views.why_facts import AHEAD_MAX, Facts

_ADMISSIBLE: Final = sources(Signal.ADMIT)


def with_holds(facts: Facts, records: Sequence[TaskRecord], known: Sequence[Situation]) -> list[Situation]:
    """Add to what is known about tasks what the last pass said of them."""
    pending = {one.id for one in records if one.state in _ADMISSIBLE}
    holds = facts.txn.passes.holds_of(pending)
    return [
        _with_hold(facts, record, one, holds.get(record.id)) if record.id in pending else one
        for record, one in zip(records, known, strict=True)
    ]


def _with_hold(facts: Facts, task: TaskRecord, known: Situation, hold: HoldRow | None) -> Situation:
    begins = task.life.not_before_ms
    if begins is not None and begins > facts.now:
        return replace(known, held=Held(text(task.id), Reason.NOT_BEFORE, until=begins))
    if hold is None or not task.contends:
        return known
    if facts.brief:
        return replace(known, held=Held(text(task.id), hold.reason, hold.name, since=hold.since_ms))
    match hold.reason:
        case Reason.MUTEX | Reason.RESERVED:
            return _behind_another(facts, task, known, hold)
        case Reason.LIMIT:
            return _short_of(facts, task, known, hold)
        case Reason.CAPACITY:
            return _crowded_out(facts, task, known, hold)
        case Reason.NO_BOT:
            return _unserved(facts, task, known)
        case _:
            return known


def _behind_another(facts: Facts, task: TaskRecord, known: Situation, hold: HoldRow) -> Situation:
    other = None if hold.by is None else facts.other(hold.by)
    if other is None or other.state in ENDED:
        return known
    if hold.reason in FOR_CAPACITY:
        return _in_line(facts, task, replace(known, other=other), hold)
    since, key = hold.mutex_since_ms, hold.name or ""
    at = None if since is None else stakes_at(facts.txn.passes.stake_after(), key, since)
    held = Held(text(task.id), hold.reason, key, other.id, hold.since_ms, mutex_since=since, stakes_at=at)
    return replace(known, held=held, other=other)


def _short_of(facts: Facts, task: TaskRecord, known: Situation, hold: HoldRow) -> Situation:
    name = hold.name or ""
    need = dict(facts.txn.passes.limits_of([task.id]).get(task.id, ())).get(name, 0)
    used, total = facts.txn.explaining.limit_use(name, HOLDING), facts.txn.passes.named_limits().get(name, 0)
    if used + need <= total:
        return known
    return replace(known, held=Held(text(task.id), hold.reason, name, used=used, total=total, need=need))


def _crowded_out(facts: Facts, task: TaskRecord, known: Situation, hold: HoldRow) -> Situation:
    found = _in_line(facts, task, known, hold)
    assert found.held is not None, "whoever is in a line is held"
    if carries(found.held.total, found.held.used or 0, task.weight):
        return known
    return found


def _in_line(facts: Facts, task: TaskRecord, known: Situation, hold: HoldRow) -> Situation:
    pool = hold.name or ""
    before, looked = facts.txn.explaining.line(pool, FOR_CAPACITY, _turn(task), AHEAD_MAX)
    held = Held(
        text(task.id),
        hold.reason,
        pool,
        since=hold.since_ms,
        place=before + 1,
        used=facts.txn.explaining.pool_use(pool, HOLDING),
        total=capacity(facts, pool),
        need=task.weight,
    )
    return replace(known, held=held, ahead=Ahead(before, whole=looked < AHEAD_MAX))


def _unserved(facts: Facts, task: TaskRecord, known: Situation) -> Situation:
    _, dimensions = facts.queue(task.queue)
    if fleet.served(dimensions, facts.fleet[0]):
        return known
    held = Held(text(task.id), Reason.NO_BOT)
    return replace(known, held=held, bots=facts.bots(dimensions))


def capacity(facts: Facts, name: str) -> int | None:
    """Say how much a pool carries at once; None if nothing limits it."""
    for pool in facts.txn.passes.pools():
        if pool.name == name:
            return fleet.slots(name, facts.fleet[0]) if pool.from_bots else pool.capacity
    return None


def _turn(task: TaskRecord) -> Turn:
    return Turn(task.priority, task.created_ms, task.id)


def text(key: int) -> TaskId:
    """Give the id of a task as admission knows it."""
    return TaskId(text_of(Key(key)))
