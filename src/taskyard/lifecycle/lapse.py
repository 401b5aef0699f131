"""The room of the clock: leases that lapsed, slices that waited too long, deadlines, starts that were put off.

After an outage of the service nobody is lost at once: bots could not renew, so each lease lasts one full lease from
the moment the service is back. Whoever is about to judge a silence asks first, in the same transaction, whether there
was an outage: a beat before it may have failed, or be long ago by now. What the clock has no more to say about gets its
next moment, so no page comes twice.
"""

from typing import Final

from taskyard.core import budget, fleet
from taskyard.core.budget import Ruling
from taskyard.core.machine import LEASED, REASONS, Outcome, sources
from taskyard.core.words import Millis, Signal
from taskyard.lifecycle import readiness, stopping
from taskyard.lifecycle.births import SERVER_QUEUE
from taskyard.lifecycle.commands import Choose
from taskyard.lifecycle.diary import MISSING, note
from taskyard.lifecycle.move import Move
from taskyard.lifecycle.moves import Corridor
from taskyard.store.records import TaskRecord
from taskyard.store.verbs.keeping import Service

#: A service that was not seen for so long was away; a sweep or two may be late.
OUTAGE_MS: Final = 3 * fleet.SWEEP_MS

_ADMISSIBLE = sources(Signal.ADMIT)


def beat(corridor: Corridor) -> None:
    """Keep that the service is alive, and since when."""
    corridor.txn.notes.set_service(_seen(corridor.txn.notes.service(), corridor.now))


def lapse(corridor: Corridor, count: int = 500, choose: Choose = list) -> int:
    """Deal with those of the first `count` tasks that are due whom `choose` names; say with how many."""
    since = _up_since(corridor)
    due = corridor.look(choose(corridor.txn.tasks.due(corridor.now, count)))
    visible = _visible(corridor, due)
    moves = []
    for task in due.values():
        move = _move(corridor, task, since) if visible[task.id] else None
        if move is None:
            _wait_on(corridor, task)
        else:
            moves.append(move)
    corridor.send(moves)
    return len(due)


def notice_silence(corridor: Corridor, count: int = 500) -> int:
    """Note that bots were not heard of for too long, each once; say how many. Nobody was heard during an outage."""
    now = corridor.now
    if now - _up_since(corridor) <= fleet.DEAD_AFTER_MS:
        return 0
    before = Millis(now - fleet.DEAD_AFTER_MS)
    found = corridor.txn.bots.look(corridor.txn.bots.silent(before, count))
    # Whoever was heard of, or noticed by another server, before we had its row is left alone.
    silent = [id for id, bot in found.items() if bot.facts.last_seen_ms < before and not bot.missing]
    if silent:
        corridor.txn.bots.miss(silent)
        note(corridor, silent, MISSING)
        corridor.stirred.append(None)
    return len(silent)


def _up_since(corridor: Corridor) -> Millis:
    """Say since when the service is up; whoever finds that it was away keeps that at once.

    Else nothing is written: the row is one for all servers, and a long page would keep it from them.
    """
    known = corridor.txn.notes.service()
    service = _seen(known, corridor.now)
    if service.since_ms != known.since_ms:
        corridor.txn.notes.set_service(service)
    return Millis(service.since_ms)


def _seen(service: Service, now: Millis) -> Service:
    """Say since when the service is up, if it is seen now.

    Of servers whose clocks are a little apart the latest counts: else each beat of one would look like the end of an
    outage to the other. A clock far behind was set back, and what was known by the old one means nothing.
    """
    if abs(now - service.seen_ms) > OUTAGE_MS:
        return Service(now, now)
    return Service(service.since_ms, max(service.seen_ms, now))


def _visible(corridor: Corridor, due: dict[int, TaskRecord]) -> dict[int, bool]:
    """Leave alone what is still being loaded: nobody counts it yet."""
    graphs = corridor.txn.graphs.peek({task.graph for task in due.values()})
    whole = {graph.id for graph in graphs if graph.loader is None}
    return {task.id: task.graph in whole and not task.hidden for task in due.values()}


def _move(corridor: Corridor, task: TaskRecord, since: Millis) -> Move | None:
    """Rule on one task, by what is due first: its lease, its deadline, its slice, its start."""
    if task.state in LEASED:
        own = task.queue == SERVER_QUEUE
        return stopping.time_out(corridor, task) if own else _end_lease(corridor, task, since)
    overdue = budget.overdue(task.life, task.rules, corridor.now)
    if overdue.outcome is Outcome.MOVE:
        return _moved(task, Signal.DEADLINE, overdue)
    expires = budget.expires_at(task.life, task.rules)
    if expires is not None and expires <= corridor.now:
        return _expire(corridor, task)
    _begin(corridor, task)
    return None


def _end_lease(corridor: Corridor, task: TaskRecord, since: Millis) -> Move | None:
    """End an attempt whose lease is over, unless the service was away and its bot may still come back."""
    assert task.lease_until_ms is not None, "only a lease is due"
    until = budget.with_grace(Millis(task.lease_until_ms), since, corridor.lease_ms)
    task.lease_until_ms = until
    if budget.given_again_at(until) > corridor.now:
        return None
    signal, ruling = budget.lease_over(task.life, task.rules, corridor.now)
    if signal is Signal.LOSE:
        task.not_by = task.bot
    return _moved(task, signal, ruling)


def _expire(corridor: Corridor, task: TaskRecord) -> Move:
    slices = len(task.rules.slices)
    is_last = task.life.slice_index == slices - 1
    capacity = [False] * slices if is_last else readiness.capacity(corridor, task)
    ruling = budget.expire(task.life, task.rules, task.life.slice_index, corridor.now, capacity)
    readiness.put_on_slice(corridor, task, ruling.life_after)
    return _moved(task, Signal.EXPIRE, ruling)


def _begin(corridor: Corridor, task: TaskRecord) -> None:
    """Let a start that was put off be judged now: by a pass if somebody could stand in its way, else at once."""
    begins = task.life.not_before_ms
    if task.state not in _ADMISSIBLE or begins is None or begins > corridor.now:
        return
    if task.contends:
        corridor.stirred.append(task.id)
    else:
        corridor.ready.append((task, Signal.ADMIT))


def _wait_on(corridor: Corridor, task: TaskRecord) -> None:
    """Say when the clock looks at a task again: never at once, so that the next page is another one."""
    due = budget.due_at(task.life, task.rules, task.lease_until_ms, corridor.now)
    task.due_ms = due if due is None or due > corridor.now else Millis(corridor.now + fleet.SWEEP_MS)
    corridor.change(task)


def _moved(task: TaskRecord, signal: Signal, ruling: Ruling) -> Move:
    assert ruling.outcome is Outcome.MOVE, f"the clock cannot {signal} a task that is {task.state}"
    return Move(task, signal, ruling.life_after, ruling.reason or REASONS[signal])
