"""Counting afresh every column of a task: from what was asked for, from what happened, and from what is open.

Nothing here trusts a stored number, and nothing here writes one. The definitions, the edges, the notes and the events
are the truth; whatever follows from them is counted again by the rules of the core, and not by the code that keeps it.
What follows from nothing at the moment stays as it is.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from taskyard.core import attempt_policy, fleet, ids
from taskyard.core.attempt_policy import Life, Rules
from taskyard.core.graph.gate import LISTENING, Edges, gate, signals
from taskyard.core.graph.model import Slice, Task
from taskyard.core.graph.payload import SERVER_KINDS, patience_ms
from taskyard.core.graph.state import Handlers
from taskyard.core.ids import Key
from taskyard.core.matching import pool_of
from taskyard.core.states import (
    ACTIVE,
    ENDED,
    LEASED,
    UNSUCCESSFUL,
    Impossible,
    Join,
    Millis,
    On,
    Reason,
    Signal,
    State,
)
from taskyard.lifecycle.doctor import finding, history
from taskyard.lifecycle.doctor.evidence import Evidence, Whole
from taskyard.lifecycle.doctor.finding import Finding
from taskyard.lifecycle.doctor.history import BORN, Past
from taskyard.lifecycle.rows import OPEN, SERVER_QUEUE
from taskyard.store.repo.bots import encode_dimensions
from taskyard.store.repo.doctor import TaskRow
from taskyard.store.rows import encode_rules

#: How far a key may run ahead of the birth that it tells: a millisecond has 65 536 places, a graph 1 000 000 tasks.
LEAD_MAX_MS: Final = 1_000
#: A queue that a slice needs and that is not there.
NO_QUEUE: Final = -1


def recounted(task: TaskRow, known: Evidence, graph: Whole, now: Millis) -> TaskRow:
    """Count a task afresh."""
    past, definition = known.pasts[task.id], known.definitions.get(task.id)
    whole = past.is_whole(task.state)
    if definition is not None:
        task = _as_asked(task, definition)
    if whole:
        task = _as_happened(task, past, known)
    task = _as_heard(task, known, graph)
    if definition is not None:
        task = _in_its_place(task, known, definition, whole)
        task = _in_its_time(task, known, definition, whole, now)
    return task


def differences(have: TaskRow, want: TaskRow) -> Iterator[Finding]:
    """Say where a task is not as it should be. A queue that is not there yet can be made."""
    for column, before, after in zip(TaskRow._fields, have, want, strict=True):
        if before != after:
            shown = None if column == "queue_id" and after == NO_QUEUE else after
            yield Finding(finding.TASK, have.id, column, before, shown)


def unmendable(task: TaskRow, known: Evidence) -> Iterator[Finding]:
    """Compare a task with what happened to it, and with what was asked for. Nobody can say which of them is right."""
    past = known.pasts[task.id]
    if past.torn is not None:
        told = f"{past.torn.signal} from {past.torn.source} to {past.torn.target}"
        yield Finding(finding.EVENT, task.id, f"event {past.torn.number}", told, "an arrow from where it was", False)
    last = past.state or BORN
    if last != task.state:
        yield Finding(finding.TASK, task.id, "state", task.state, last, mendable=False)
    if task.id not in known.definitions:
        stored = "unreadable" if task.id in known.asked else None
        yield Finding(finding.TASK, task.id, "definition", stored, "there", mendable=False)


def stuck(task: TaskRow, graph: Whole) -> Iterator[Finding]:
    """Find who should have moved when its last edge did: a wake-up was lost. Its numbers have to be right."""
    if task.loading or graph.is_loading or OPEN in graph.notes:
        return
    wished = wishes(task, graph)
    if wished:
        yield Finding(finding.TASK, task.id, "gate", "unasked", str(wished[0]))


def wishes(task: TaskRow, graph: Whole) -> Sequence[Signal]:
    """Say what the gate of a task asks for."""
    if task.state not in LISTENING or task.join_rule not in set(Join) or task.on_impossible not in set(Impossible):
        return ()
    edges = Edges(task.awaited, task.met, task.broken, task.impossible)
    asked = gate(edges, Join(task.join_rule), Impossible(task.on_impossible))
    return signals(State(task.state), asked, graph.is_hushed)


# What was asked for, what happened, and what was heard.


def _as_asked(task: TaskRow, definition: Task) -> TaskRow:
    first = definition.slices[0]
    created = _created(task)
    return task._replace(
        created_ms=created,
        rules=encode_rules(attempt_policy.rules_of(definition, created)),
        kind=first.kind.text,
        priority=definition.priority,
        weight=0 if first.kind in SERVER_KINDS else definition.weight,
        join_rule=definition.join.text,
        on_impossible=definition.on_impossible.text,
        is_handler=int(any(edge.on is not On.SUCCESS for edge in definition.requires)),
        is_constrained=int(bool(definition.mutexes or definition.limits)),
    )


def _created(task: TaskRow) -> Millis:
    """Say when a task was born: its key tells it too, and may run ahead a little."""
    told = ids.stamp(Key(task.id)).created_ms
    return Millis(task.created_ms) if told - LEAD_MAX_MS <= task.created_ms <= told else told


def _as_happened(task: TaskRow, past: Past, known: Evidence) -> TaskRow:
    deed = past.deeds.get(past.attempt)
    leased = task.state in LEASED and deed is not None
    return task._replace(
        previous_state=past.was,
        reason=_reason(task, past),
        moved_ms=task.moved_ms if past.moved_ms is None else past.moved_ms,
        attempt=past.attempt,
        began_after=past.began_after,
        ended=past.ended,
        round=past.round,
        reruns_used=past.reruns_used,
        retries_used=past.retries_used,
        bot_id=deed.bot if leased and deed is not None else task.bot_id,
        avoid_bot=past.avoid_bot,
        fence=history.fence_of(task, past, known.tried.get(task.id, ())),
    )


def _reason(task: TaskRow, past: Past) -> str:
    """Say why a task is where it is; that an attempt has begun since it was assigned leaves no event."""
    has_begun = past.reason == Reason.ASSIGNED and task.reason == Reason.UNDER_WAY
    return task.reason if has_begun else past.reason or Reason.PREREQUISITE.text


def _as_heard(task: TaskRow, known: Evidence, graph: Whole) -> TaskRow:
    edges = known.heard.get(task.id, Edges(task.awaited, task.met, task.broken, task.impossible))
    handlers, telling = _hoped(task, known), known.tellings.get(task.id)
    return task._replace(
        awaited=edges.awaited,
        met=edges.met,
        broken=edges.broken,
        impossible=edges.impossible,
        handlers_ran=handlers.ran,
        handlers_open=handlers.hoped,
        open_continuations=0 if telling is None else telling.notes,
        loading=int(graph.hides(task, known.pasts[task.id])),
    )


def _hoped(task: TaskRow, known: Evidence) -> Handlers:
    """Give the handlers of a task; a failure that is still being told is a hope of its own."""
    handlers, telling = known.handlers.get(task.id), known.tellings.get(task.id)
    if handlers is None:
        return Handlers(task.handlers_ran, task.handlers_open)
    if telling is not None and telling.target in UNSUCCESSFUL:
        return Handlers(handlers.ran, handlers.hoped + 1)
    return handlers


# Where it waits.


def _in_its_place(task: TaskRow, known: Evidence, definition: Task, whole: bool) -> TaskRow:
    """Put a task on the slice that it can be on, in its queue, and before a pass if one has to admit it."""
    slices = definition.slices
    if whole:
        left = history.slices_left(known.pasts[task.id], known.tried.get(task.id, ()), slices)
        task = task._replace(slice_index=_slice(task, sorted(left), slices, known))
    if not 0 <= task.slice_index < len(slices):
        return task
    queue = _queue(slices[task.slice_index], known)
    return task._replace(queue_id=queue, needs_admission=_contends(task, known, definition, whole))


def _slice(task: TaskRow, left: Sequence[int], slices: Sequence[Slice], known: Evidence) -> int:
    """Say on which slice a task is: one that it can have come to. If there are several, its queue tells which."""
    if task.slice_index in left or not left:
        return task.slice_index
    fitting = [index for index in left if _queue(slices[index], known) == task.queue_id]
    return min(fitting or left)


def _queue(one: Slice, known: Evidence) -> int:
    return SERVER_QUEUE if one.kind in SERVER_KINDS else known.queues.get(encode_dimensions(one.dimensions), NO_QUEUE)


def _contends(task: TaskRow, known: Evidence, definition: Task, whole: bool) -> int:
    """Say whether a pass has to admit a task.

    That was judged when it became pending. A pool that lost its capacity since leaves its tasks to a pass all the same.
    """
    past, is_active = known.pasts[task.id], task.state in ACTIVE
    if whole and not past.released:
        return 0
    if task.is_constrained:
        return 1 if is_active or past.admitted else int(task.needs_admission == 1)
    slices = definition.slices[task.slice_index : task.slice_index + 1] if is_active else definition.slices
    pools = [pool_of(one.dimensions) for one in slices] if task.weight else []
    described = [known.pools[pool] for pool in pools if pool in known.pools]
    if not described:
        return 0
    # What a pool has not told all of its tasks yet is told by the next pass.
    return 1 if is_active and any(described) and not known.unentered else int(task.needs_admission == 1)


# When it is due.


def _in_its_time(task: TaskRow, known: Evidence, definition: Task, whole: bool, now: Millis) -> TaskRow:
    rules, past = attempt_policy.rules_of(definition, Millis(task.created_ms)), known.pasts[task.id]
    if whole:
        task = task._replace(
            not_before_ms=_not_before(past, rules),
            waits_since_ms=_waits_since(task, past, bool(definition.mutexes), now),
            lease_until_ms=_own_lease(task, past, definition, rules)
            if task.queue_id == SERVER_QUEUE
            else _lease_until(task, past, known, rules),
        )
    return task._replace(due_ms=_due(task, rules, now))


def _not_before(past: Past, rules: Rules) -> int | None:
    if past.put_off is not None:
        since, reruns_used = past.put_off
        delay = attempt_policy.back_off_ms(rules, reruns_used)
        return since + delay if delay else None
    return rules.not_before_ms if past.untouched else None


def _waits_since(task: TaskRow, past: Past, excludes: bool, now: Millis) -> int | None:
    """Say since when the slice of a task waits for a bot.

    That is when it was admitted; but if it names mutexes, a pass may have found before that no bot is there for it.
    """
    if past.pending_ms is None:
        return None
    since = task.waits_since_ms
    if past.admitted_ms is None and (since is None or not excludes):
        return None
    ended_ms = past.moved_ms if task.state in ENDED else now
    latest = past.admitted_ms if past.admitted_ms is not None else ended_ms
    if excludes and since is not None and latest is not None:
        # The clocks of two servers may differ by so much.
        fits = past.pending_ms - fleet.GUARD_MS <= since <= latest + fleet.GUARD_MS
        return since if fits else past.admitted_ms
    return past.admitted_ms


def _own_lease(task: TaskRow, past: Past, definition: Task, rules: Rules) -> int | None:
    """Say until when the server may run a task itself."""
    deed = past.deeds.get(past.attempt)
    if task.state not in LEASED or deed is None:
        return None
    return attempt_policy.own_lease(
        Millis(deed.claimed_ms), patience_ms(definition.slices[0].payload), rules.deadline_ms
    )


def _lease_until(task: TaskRow, past: Past, known: Evidence, rules: Rules) -> int | None:
    """Say when the lease of a task ends: a full lease after its bot was given it or last heard of, or in between.

    A renewal leaves no event; but when the clock looks at the task again follows from its lease, too.
    """
    deed = past.deeds.get(past.attempt)
    if task.state not in LEASED or deed is None or (task.lease_until_ms is None and task.bot_id not in known.seen):
        return None
    heard = max(deed.claimed_ms, _renewed_by(known.seen.get(task.bot_id or "", 0), rules), known.since_ms)
    first, last = deed.claimed_ms + fleet.LEASE_MS, heard + fleet.LEASE_MS
    until, due = task.lease_until_ms, None if task.due_ms is None else task.due_ms - fleet.GUARD_MS
    longest = heard + fleet.LEASE_MAX_MS + fleet.GUARD_MS
    if until is not None and until == due and deed.claimed_ms - fleet.GUARD_MS <= until <= longest:
        return until  # both say so: leases last as a server says, or end when a bot leaves with too much at once
    fitting = (one for one in (until, due) if one is not None and first <= one <= last + fleet.GUARD_MS)
    return next(fitting, last)


def _renewed_by(seen_ms: int, rules: Rules) -> int:
    """Say when a bot that was last heard of then can have renewed a lease: not past the deadline."""
    return seen_ms if rules.deadline_ms is None else min(seen_ms, rules.deadline_ms)


def _due(task: TaskRow, rules: Rules, now: Millis) -> int | None:
    """Say when the clock has to look at a task: as it was when it moved, or as it is by now."""
    if not 0 <= task.slice_index < len(rules.slices):
        return task.due_ms
    until = None if task.lease_until_ms is None else Millis(task.lease_until_ms)
    waits, begins = _millis(task.waits_since_ms), _millis(task.not_before_ms)
    life = Life(State(task.state), slice_index=task.slice_index, waits_since_ms=waits, not_before_ms=begins)
    then, today = (attempt_policy.due_at(life, rules, until, at) for at in (Millis(task.moved_ms), now))
    # What is due and cannot be dealt with is put off until the next sweep.
    is_late = task.due_ms is not None and today is not None and today <= now and today < task.due_ms
    put_off = is_late and task.due_ms is not None and task.due_ms <= now + fleet.SWEEP_MS
    return task.due_ms if put_off or task.due_ms in {then, today} else then


def _millis(value: int | None) -> Millis | None:
    return None if value is None else Millis(value)
