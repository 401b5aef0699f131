"""The room where the server takes its own work: what does nothing begins and ends here, what asks a person begins.

Its attempts belong to no bot. They have no lease to renew, so nothing can be lost with a server; where time can be
over, the moment stands where a lease would, and the clock says so. What has a graph inside begins with that graph
(`lifecycle/inner.py`).
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from taskyard.core import budget
from taskyard.core.graph.approval import Decision, patience_ms
from taskyard.core.graph.document import Payload
from taskyard.core.machine import REASONS
from taskyard.core.words import Kind, Reason, Signal
from taskyard.lifecycle.births import SERVER_QUEUE
from taskyard.lifecycle.commands import Choose
from taskyard.lifecycle.definitions import decoded
from taskyard.lifecycle.move import Move, Taker
from taskyard.lifecycle.moves import Corridor
from taskyard.store.records import TaskRecord

#: Who an attempt of the server's own belongs to. No bot may be called so.
SERVER: Final = Taker("server", "", "", None)
#: What is served here, and of that what asks a person.
_SERVED: Final = (Kind.NOOP.text, Kind.APPROVAL.text)
_ASKING: Final = Kind.APPROVAL.text
_CLAIMED: Final = REASONS[Signal.CLAIM]


def serve_own(corridor: Corridor, count: int = 500, choose: Choose = list) -> int:
    """Begin those of the first `count` tasks of the server's own whom `choose` names, and end what does nothing.

    Says how many. Those that this releases are found by the next call.
    """
    ids = choose(corridor.txn.tasks.waiting(SERVER_QUEUE, _SERVED, count))
    tasks = [task for task in corridor.look(ids).values() if not budget.past(task.rules.deadline_ms, corridor.now)]
    asking = [task for task in tasks if task.kind == _ASKING]
    idle = [task for task in tasks if task.kind != _ASKING] if asking else tasks
    corridor.send([Move(one, Signal.CLAIM, budget.claimed(one.life), _CLAIMED, SERVER) for one in idle])
    corridor.send([_done(corridor, task) for task in idle])
    if asking:
        _ask(corridor, asking)
    return len(tasks)


def payloads(corridor: Corridor, tasks: Sequence[TaskRecord]) -> Mapping[int, Payload]:
    """Read what tasks of the server's own run; they have one slice."""
    texts = corridor.txn.tasks.definitions([task.id for task in tasks])
    return {id: decoded(text).slices[0].payload for id, (_, text) in texts.items()}


def begun(corridor: Corridor, task: TaskRecord, payload: Payload, reason: Reason = _CLAIMED) -> Move:
    """Begin an attempt of the server's own that may take a while."""
    until = budget.own_lease(corridor.now, patience_ms(payload), task.rules.deadline_ms)
    taker = Taker(SERVER.bot, SERVER.session, SERVER.poll, until)
    return Move(task, Signal.CLAIM, budget.claimed(task.life), reason, taker)


def ended(corridor: Corridor, task: TaskRecord, signal: Signal, reason: Reason, result: str | None = None) -> Move:
    """End an attempt of the server's own, with what it leaves; why it ends is said unless the rules know better."""
    if result is not None:
        corridor.txn.attempts.add_results([(task.id, task.life.attempt, result)])
    ruling = budget.report(task.life, task.rules, task.life.attempt, signal, corridor.now)
    known = None if ruling.reason is Reason.DONE else ruling.reason
    return Move(task, signal, ruling.life_after, known or reason)


def decided(corridor: Corridor, task: TaskRecord, decision: Decision) -> Move:
    """End an approval as it was decided."""
    signal = Signal.SUCCEED if decision.approved else Signal.FAIL
    said = Reason.DONE if decision.approved else Reason.DENIED
    reason = Reason.TIMED_OUT if decision.timed_out else said
    return ended(corridor, task, signal, reason, msgspec.json.encode(decision).decode())


def _done(corridor: Corridor, task: TaskRecord) -> Move:
    ruling = budget.report(task.life, task.rules, task.life.attempt, Signal.SUCCEED, corridor.now)
    return Move(task, Signal.SUCCEED, ruling.life_after, REASONS[Signal.SUCCEED])


def _ask(corridor: Corridor, tasks: Sequence[TaskRecord]) -> None:
    found = payloads(corridor, tasks)
    corridor.send([begun(corridor, task, found[task.id], Reason.APPROVAL) for task in tasks])
