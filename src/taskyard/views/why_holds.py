"""What the last pass said of pending tasks, as far as it still is so, with the figures that change all the time.

A mutex that was given back meanwhile, or a pool that has room again, is for the next pass to say: then nothing is said
here. The rule is that of `core.admission`. Nothing here writes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from taskyard.core import fleet
from taskyard.core.admission import FOR_CAPACITY, carries, stakes_at
from taskyard.core.explain import Ahead, Situation
from taskyard.core.ids import Key, text_of
from taskyard.core.machine import ENDED, HOLDING, sources
from taskyard.core.partials import Held
from taskyard.core.words import Reason, Signal, TaskId
from taskyard.store.repo.admission import HoldRow
from taskyard.store.repo.read import Turn
from taskyard.store.rows import TaskRecord
from taskyard.views.why_facts import AHEAD_MAX, Facts

_ADMISSIBLE: Final = sources(Signal.ADMIT)


def with_holds(facts: Facts, records: Sequence[TaskRecord], known: Sequence[Situation]) -> list[Situation]:
    """Add to what is known about tasks what the last pass said of them."""
    pending = {one.id for one in records if one.state in _ADMISSIBLE}
    holds = facts.txn.passes.holds_of(pending)
    common = _Common(facts, holds) if facts.brief else None
    return [
        _with_hold(facts, record, one, holds.get(record.id), common) if record.id in pending else one
        for record, one in zip(records, known, strict=True)
    ]


class _Common:
    """What many holds have in common, read once, to tell in brief which of them still are so."""

    def __init__(self, facts: Facts, holds: Mapping[int, HoldRow]) -> None:
        self._facts = facts
        by = {one.by for one in holds.values() if one.by is not None}
        self._open = {one.id for one in facts.txn.tasks.look(by) if one.state not in ENDED} if by else set()
        short = [id for id, one in holds.items() if one.reason is Reason.LIMIT]
        self._needs = facts.txn.passes.limits_of(short) if short else {}
        self._room: dict[str, tuple[int, int]] = {}
        self._pools: dict[str, tuple[int | None, int]] = {}

    def is_so(self, task: TaskRecord, hold: HoldRow) -> bool:
        """Tell whether a hold still is as the last pass found it, as the full answer does."""
        match hold.reason:
            case Reason.MUTEX | Reason.RESERVED:
                return hold.by in self._open
            case Reason.LIMIT:
                return not self._has_room(hold.name or "", dict(self._needs.get(task.id, ())))
            case Reason.CAPACITY:
                total, used = self._pool(hold.name or "")
                return not carries(total, used, task.weight)
            case Reason.NO_BOT:
                return not fleet.served(self._facts.queue(task.queue)[1], self._facts.fleet[0])
            case _:
                return False

    def _has_room(self, name: str, needs: Mapping[str, int]) -> bool:
        if name not in self._room:
            used = self._facts.txn.explaining.limit_use(name, HOLDING)
            self._room[name] = used, self._facts.txn.passes.named_limits().get(name, 0)
        used, total = self._room[name]
        return used + needs.get(name, 0) <= total

    def _pool(self, name: str) -> tuple[int | None, int]:
        if name not in self._pools:
            self._pools[name] = capacity(self._facts, name), self._facts.txn.explaining.pool_use(name, HOLDING)
        return self._pools[name]


def _with_hold(
    facts: Facts, task: TaskRecord, known: Situation, hold: HoldRow | None, common: _Common | None
) -> Situation:
    begins = task.life.not_before_ms
    if begins is not None and begins > facts.now:
        return replace(known, held=Held(text(task.id), Reason.NOT_BEFORE, until=begins))
    if hold is None or not task.contends:
        return known
    return _in_full(facts, task, known, hold) if common is None else _in_brief(common, task, known, hold)


def _in_brief(common: _Common, task: TaskRecord, known: Situation, hold: HoldRow) -> Situation:
    if not common.is_so(task, hold):
        return known
    return replace(known, held=Held(text(task.id), hold.reason, hold.name, since=hold.since_ms))


def _in_full(facts: Facts, task: TaskRecord, known: Situation, hold: HoldRow) -> Situation:
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
