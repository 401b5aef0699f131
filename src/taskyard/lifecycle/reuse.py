"""Deduplicate idempotent tasks: reuse an equal result, and let one of several equal tasks run while the others wait.

A slice that becomes current gets a key (`core/reuse.py`). If a young result with that key is known, the task succeeds
at once: no bot is asked, and nothing of it is stored but where its result comes from. If an equal task is under way,
that one leads and this one follows: it stays pending, needs no admission and holds nothing. When the leader succeeds
its followers succeed in the same transaction, or by a continuation; when it ends in any other way, or goes on with
another slice, the first of its followers takes its place.

Most keys are known when a task is submitted: those of tasks that receive nothing. Such a key is inserted then, with the
task that may lead it. A release only looks whether it is still so. Until that task begins, an equal one that begins
earlier takes the key.

The row of a key is locked before its followers are read or added, so none is forgotten; it is locked after tasks and
before graphs. A release that finds its key locks only its task; so a task that has not begun is locked before another
one takes its key. Tasks that are not idempotent never come here.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from taskyard.core import attempt_policy
from taskyard.core.durations import span_text
from taskyard.core.graph.model import SLICES_MAX
from taskyard.core.ids import Key, key_of, text_of
from taskyard.core.matching import Dimensions
from taskyard.core.reuse import (
    IDS_MAX,
    Course,
    KeyState,
    Received,
    Result,
    ReusePolicy,
    Ruling,
    SliceText,
    choose,
    course,
    follows,
    is_early,
    key,
    leads,
    received_key,
    slice_text,
    waits_apart,
)
from taskyard.core.states import Join, Millis, Propagation, Reason, Signal, State, TaskId, propagation_of, sources
from taskyard.lifecycle.commands import NO_SUBJECT
from taskyard.lifecycle.rows import RESULT_PER_ROW, ROWS_PER_TASK, SERVER_QUEUE
from taskyard.lifecycle.transition import Transition
from taskyard.store.connection import Repo
from taskyard.store.queries import TransactionConflict
from taskyard.store.repo.secrets import MISSING
from taskyard.store.repo.tasks import ReuseKeyRow, ReusePolicyRow, digest_of_result
from taskyard.store.rows import Continuation, TaskRecord

if TYPE_CHECKING:
    from taskyard.lifecycle.transaction import Transaction

#: The continuation "the followers of this key reuse its result, or the first of them leads it".
SERVE: Final = "reuse_followers"
#: After these signals a slice is current for the first time.
JUDGED: Final = frozenset({Signal.RELEASE, Signal.EXPIRE})
_REUSED: Final = Reason.REUSED
#: The states of a task that can follow.
_REUSABLE: Final = sources(Signal.REUSE)
#: What a pool allows that is not configured.
DEFAULT_POLICY: Final = ReusePolicy()
#: The audit action of a pool that reuses results for another time, or of other submitters.
SET_REUSE: Final = "set_reuse"
#: A new leader costs as much as so many edges: its slice, its key and its admission are looked at one after the other.
_LEADER_WEIGHT: Final = 10


def ready(transaction: "Transaction", tasks: Iterable[TaskRecord]) -> list[TaskRecord]:
    """Return those of some pending tasks that can be judged now.

    One that may not start yet leads no others: it is judged when it may. In a canceled graph nothing starts.
    """
    found = []
    for task in tasks:
        begins = task.life.not_before_ms
        if begins is not None and begins > transaction.now:
            _set_apart(transaction, task, Reason.NOT_BEFORE)
        elif not transaction.is_canceled(task.graph):
            found.append(task)
    return found


def is_put_off(task: TaskRecord) -> bool:
    """Tell whether a pending task has not been judged because it could not start."""
    return task.rules.idempotent and task.reason == Reason.NOT_BEFORE.text


class EarlyTasks(NamedTuple):
    """Released tasks that still have the keys that they got when they were submitted.

    No equal task has taken one, and none has left a result.
    """

    final: Mapping[int, TaskRecord]  # they received nothing and run with these keys
    later: AbstractSet[int]  # they received a result, so these keys are only the first part of theirs


def early(transaction: "Transaction", tasks: Iterable[TaskRecord]) -> EarlyTasks:
    """Find those of some released tasks that have early keys."""
    found = {task.id: task for task in tasks if _can_have_early_key(transaction, task)}
    with_keys = transaction.repo.reuse.with_keys(found)
    later = transaction.repo.reuse.with_results([id for id in with_keys if found[id].edges.met])
    if len(with_keys) == len(found) and not later:
        return EarlyTasks(found, later)
    return EarlyTasks({id: task for id, task in found.items() if id in with_keys and id not in later}, later)


def judge(
    transaction: "Transaction",
    tasks: Sequence[TaskRecord],
    serves: Mapping[int, Sequence[bool]],
    early_tasks: EarlyTasks,
) -> dict[int, Ruling | None]:
    """Rule on pending tasks with new slices; None if no slice of a task can go on.

    `serves` says for each slice of a task whether a bot could serve it or it waits for one. What a ruling about the
    current slice means for the key is written here; the transition is the caller's. Those of the tasks with final
    early keys that are equal to one of these are ruled on, too: which of them runs does not depend on who came first.
    """
    own = transaction.repo.reuse.keys_of([task.id for task in tasks if not follows(task.life.state, task.reason)])
    slices = {task.id: _looked_up(task, serves[task.id]) for task in tasks}
    first_parts = {id: one for one, id in own if id in early_tasks.later and is_early(one) and len(slices[id]) == 1}
    keys = _keys(transaction, tasks, slices, first_parts)
    reserved = [(one, id) for one, id in own if id not in first_parts]
    transaction.repo.reuse.drop_reserved(first_parts.values())
    return _Judge(transaction, tasks, keys, reserved, early_tasks.final).rule(serves)


def leave_keys(transaction: "Transaction", moved: Sequence[tuple[TaskRecord, State, Signal]]) -> list[Transition]:
    """Settle the keys of idempotent tasks that have ended, or go on with another slice.

    Each comes with the state that it left and the signal. Return the transitions of followers that follow from it.
    """
    repo = transaction.repo.reuse
    repo.delete_followers([task.id for task, source, _ in moved if source in _REUSABLE])
    signals = {task.id: (task, signal) for task, _, signal in moved}
    led = repo.lock_led(list(signals))
    if not led:
        return []
    good = _published(transaction, led, signals)
    repo.finish([_finished_row(transaction, row.key, signals[row.leader or 0][0]) for row in good])
    repo.change_leaders([(one, None) for one in led.keys() - {row.key for row in good}])
    graphs = {row.key: signals[row.leader or 0][0].graph for row in led.values()}
    transitions, left = _move_on(transaction, list(led))
    for one in sorted(left):
        transaction.defer(SERVE, graphs[one], [one])
    return transitions


def serve_page(transaction: "Transaction", continuation: Continuation) -> bool:
    """Let some followers of a key reuse its result, or one of them lead it; return whether the continuation is done."""
    locked = transaction.repo.reuse.lock_keys([continuation.tasks])
    if _leaders(transaction, locked.values()).get(continuation.tasks) is None:
        transitions, left = _move_on(transaction, [continuation.tasks])
        transaction.apply(transitions)
        if left:
            return False
    transaction.complete(continuation)
    return True


# What pools allow.


def reuse_policy(row: ReusePolicyRow | None) -> ReusePolicy:
    """Return what a pool allows; None stands for one that is not configured."""
    if row is None:
        return DEFAULT_POLICY
    return ReusePolicy(DEFAULT_POLICY.window_ms if row.window_ms is None else row.window_ms, row.shared)


def set_policy(transaction: "Transaction", pool: str, window_ms: int, shared: bool, actor: str) -> None:
    """Set for how long a pool reuses results, and whether across submitters."""
    wanted = ReusePolicy(window_ms, shared)
    if transaction.reuse_policies().get(pool, DEFAULT_POLICY) != wanted:
        transaction.repo.reuse.set_policy(ReusePolicyRow(pool, window_ms, shared))
        text = f"for {span_text(window_ms)}" if window_ms else "never"
        transaction.audit(actor, SET_REUSE, NO_SUBJECT, f"{pool}: {text}{', across submitters' if shared else ''}")


# Judging.


def _can_have_early_key(transaction: "Transaction", task: TaskRecord) -> bool:
    """Tell whether what a task runs with now can have been known when it was submitted."""
    life, rules = task.life, task.rules
    if life.slice_index or not rules.slices[0].wait_for_capacity or waits_apart(life.state, task.reason):
        return False
    return not transaction.reuse_policies() or _has_plain_policy(transaction, task)


def _has_plain_policy(transaction: "Transaction", task: TaskRecord) -> bool:
    """Tell whether the key of a task has its submitter, as by default."""
    if task.queue == SERVER_QUEUE:
        return False
    policy = _policy(transaction, task)
    return policy.window_ms > 0 and not policy.shared


def _policy(transaction: "Transaction", task: TaskRecord) -> ReusePolicy:
    """Return what the pool of a task allows."""
    if not transaction.reuse_policies():
        return DEFAULT_POLICY
    pool = transaction.registry.queue(transaction.repo, task.queue).pool
    return transaction.reuse_policies().get(pool, DEFAULT_POLICY)


class _SliceKey(NamedTuple):
    """The key of a slice, and what its pool allows."""

    key: str
    policy: ReusePolicy


#: The ruling that a task runs with its current slice, by that.
_RUNS: Final = tuple(Ruling(index, Course.RUN) for index in range(SLICES_MAX))


#: The first slice of a task with an early key waits for a bot.
_FIRST_SERVES: Final = (True,)


class _Judge:
    """Rules on tasks one after the other: the second of two equal ones follows the first."""

    def __init__(
        self,
        transaction: "Transaction",
        tasks: Sequence[TaskRecord],
        keys: Mapping[int, Sequence[_SliceKey | None]],
        reserved: Sequence[tuple[str, int]],
        early_tasks: Mapping[int, TaskRecord],
    ) -> None:
        self._transaction = transaction
        named = {one.key: one for found in keys.values() for one in found if one}
        self._rows = transaction.repo.reuse.lock_keys(named)
        equal = {row.leader: row.key for row in self._rows.values() if row.leader in early_tasks}
        self._early = [early_tasks[id] for id in equal if id is not None]
        self._tasks = sorted([*tasks, *self._early], key=lambda task: (task.priority, task.created_ms, task.id))
        self._keys = {**keys, **{task.id: (named[equal[task.id]],) for task in self._early}}
        self._leaders = _leaders(transaction, self._rows.values(), self._keys)
        self._reserved = [*reserved, *((equal[task.id], task.id) for task in self._early)]
        self._leads: list[tuple[str, int]] = []
        self._followers: list[tuple[int, str, int, int]] = []
        self._reuses = _Reuses(transaction)
        self._left: dict[str, int] = {}  # keys whose results are reused later, and a graph with one of these tasks

    def rule(self, serves: Mapping[int, Sequence[bool]]) -> dict[int, Ruling | None]:
        """Rule on tasks, and write what that means for their keys."""
        serving = {**serves, **{task.id: _FIRST_SERVES for task in self._early}}
        rulings = {task.id: self._rule(task, serving[task.id]) for task in self._tasks}
        repo = self._transaction.repo.reuse
        repo.change_leaders([(key, None) for key, _ in self._reserved if self._leaders.get(key) is None])
        repo.lead(self._leads, self._rows)
        repo.add_followers(self._followers)
        for one, graph in self._left.items():
            self._transaction.defer(SERVE, graph, [one])
        self._reuses.write()
        return rulings

    def _rule(self, task: TaskRecord, serves: Sequence[bool]) -> Ruling | None:
        first, keys = task.life.slice_index, self._keys[task.id]
        one = keys[0]
        if serves[first] and one is not None and one.key not in self._leaders:  # most tasks that run are the first
            self._let_run(task, one)
            return _RUNS[first]
        found = choose([self._course(task, one) for one in keys], first, serves)
        if found is None or found.index != first:
            return found
        return Ruling(first, self._carry_out(task, keys[0], found.course))

    def _course(self, task: TaskRecord, one: _SliceKey | None) -> Course:
        if one is None:
            return Course.RUN
        known = KeyState(self._leaders.get(one.key), _newest(self._rows.get(one.key)))
        return course(known, task.id, one.key, self._transaction.now, one.policy)

    def _carry_out(self, task: TaskRecord, one: _SliceKey | None, wanted: Course) -> Course:
        if wanted is Course.RUN:
            self._let_run(task, one)
            return wanted
        assert one is not None, "only an equal task can be reused or followed"
        if wanted is Course.REUSE:
            if self._reuses.add(task, self._rows[one.key]):
                return wanted
            self._left.setdefault(one.key, task.graph)  # there is no room for it in this transaction
        self._followers.append((task.id, one.key, task.priority, task.created_ms))
        _set_apart(self._transaction, task, Reason.DUPLICATE_OF)
        return Course.FOLLOW

    def _let_run(self, task: TaskRecord, one: _SliceKey | None) -> None:
        if one is not None and self._leaders.get(one.key) != task.id:
            self._leads.append((one.key, task.id))
            self._leaders[one.key] = task.id
        if waits_apart(task.life.state, task.reason):
            task.reason = Reason.UNSEEN.text
            self._transaction.mark_changed(task)


def _leaders(
    transaction: "Transaction", rows: Iterable[ReuseKeyRow], judged: Collection[int] = ()
) -> dict[str, int | None]:
    """Return the tasks that lead keys; None where there is none, or it has not begun or is `judged` now.

    One that has not begun is locked until this transaction ends, because another task may take its key.
    """
    repo = transaction.repo.reuse
    found = {row.key: row.leader for row in rows}
    known = {id: transaction.known_task(id) for id in set(found.values()) if id is not None and id not in judged}
    states = [(id, task.life.state, task.reason) for id, task in known.items() if task is not None]
    idle = _idle(states)
    unlocked = _idle(repo.states([id for id, task in known.items() if task is None]))
    if unlocked and unlocked != _idle(repo.lock_states(unlocked)):
        raise TransactionConflict("an equal task has begun meanwhile")
    return {key: None if id in judged or id in idle or id in unlocked else id for key, id in found.items()}


def _idle(states: Iterable[tuple[int, State, str]]) -> set[int]:
    return {id for id, state, reason in states if not leads(state, reason)}


class _Reuses:
    """The reuses of one transaction, as many as fit: one takes as long as an edge, with much to copy longer."""

    def __init__(self, transaction: "Transaction") -> None:
        self._transaction = transaction
        self._rows: list[tuple[int, int, int, int]] = []
        self._with_more: list[int] = []  # that a result or named files are copied to

    def add(self, task: TaskRecord, row: ReuseKeyRow) -> bool:
        """Let a task reuse the result of a key; False if that does not fit any more."""
        assert row.source is not None, "a key with a result has a source"
        assert row.source_graph is not None
        assert row.attempt is not None
        weight = 1 if row.size is None else -(-(2 + row.size // RESULT_PER_ROW) // ROWS_PER_TASK)
        if weight > self._transaction.reuse_budget:
            return False
        self._transaction.reuse_budget -= weight
        self._rows.append((task.id, row.source, row.source_graph, row.attempt))
        if row.size is not None:
            self._with_more.append(task.id)
        return True

    def write(self) -> None:
        """Write where the results come from, and copy them."""
        repo = self._transaction.repo.reuse
        repo.add(self._rows)
        repo.copy_reused_results(self._with_more)
        reused_ids = [row[0] for row in self._rows]
        self._transaction.repo.files.copy(reused_ids)
        self._transaction.repo.secrets.drop_bytes(reused_ids)


def _newest(row: ReuseKeyRow | None) -> Result | None:
    """Return the newest result of a key. It is that of a task that really ran."""
    if row is None or row.source is None or row.finished_ms is None:
        return None
    return Result(TaskId(text_of(Key(row.source))), row.key, State.SUCCESSFUL, row.finished_ms)


def _looked_up(task: TaskRecord, serves: Sequence[bool]) -> Sequence[int]:
    """Return the slices that are current one after the other: from the current one to the first that can be served."""
    first = task.life.slice_index
    last = next((index for index in range(first, len(serves)) if serves[index]), len(serves) - 1)
    return range(first, last + 1)


def _set_apart(transaction: "Transaction", task: TaskRecord, reason: Reason) -> None:
    """Keep a pending task from admission."""
    task.reason = reason.text
    if task.needs_admission:
        task.needs_admission = False
        transaction.mark_dirty(task.id)  # a pass that has the task in memory has to forget it
    transaction.mark_changed(task)


# The ends of leaders.


def _published(
    transaction: "Transaction", led: Mapping[str, ReuseKeyRow], ended: Mapping[int, tuple[TaskRecord, Signal]]
) -> list[ReuseKeyRow]:
    """Return the keys whose leader has succeeded, with what the key says.

    What a task received may have changed after its key was made, if it had not to wait for all of it, or has secrets.
    """
    good = [row for row in led.values() if _has_succeeded(*ended[row.leader or 0])]
    doubtful = [task for row in good if _may_change(task := ended[row.leader or 0][0])]
    if not doubtful:
        return good
    now = _keys(transaction, doubtful, {task.id: [task.life.slice_index] for task in doubtful})
    return [row for row in good if row.leader not in now or [one and one.key for one in now[row.leader]] == [row.key]]


def _has_succeeded(task: TaskRecord, signal: Signal) -> bool:
    return signal is Signal.SUCCEED and propagation_of(task.life.state) is Propagation.SUCCESS


def _may_change(task: TaskRecord) -> bool:
    """Tell whether a task can receive something else than its key says; a task with secrets is constrained."""
    return task.join is Join.ANY or task.is_handler or task.is_constrained


def _finished_row(transaction: "Transaction", key: str, task: TaskRecord) -> tuple[str, int, int, int, Millis, int]:
    # A named file is one row to copy.
    return (key, task.id, task.graph, task.life.attempt, transaction.now, RESULT_PER_ROW)


def _move_on(transaction: "Transaction", keys: Sequence[str]) -> tuple[list[Transition], set[str]]:
    """Let the followers of locked keys without a leader reuse the result; if there is none, let the first one lead.

    Return their transitions, and the keys for which this transaction has no room.
    """
    most = max(transaction.reuse_budget, 1)
    found = transaction.repo.reuse.followers(keys, most + 1)
    if not found:
        return [], set()
    left = {one for one in keys if one >= found[-1][0]} if len(found) > most else set()
    by_key: dict[str, list[int]] = defaultdict(list)
    for one, task in found[:most]:
        by_key[one].append(task)
    tasks = transaction.lock_tasks([task for ids in by_key.values() for task in ids])
    rows = transaction.repo.reuse.lock_keys(by_key.keys())
    step = _MoveOn(transaction, tasks, rows)
    for one, ids in by_key.items():
        row = rows.get(one)
        if row is not None and row.source is not None:
            if not step.reuse(row, ids):
                left.add(one)
        elif step.lead(one, ids):
            left.discard(one)  # the others wait for the new leader
        else:
            left.add(one)
    return step.write(), left


class _MoveOn:
    """What happens to followers whose leader has ended."""

    def __init__(
        self, transaction: "Transaction", tasks: Mapping[int, TaskRecord], rows: Mapping[str, ReuseKeyRow]
    ) -> None:
        self._transaction = transaction
        self._tasks = tasks
        self._rows = rows
        self._reuses = _Reuses(transaction)
        self._done: list[int] = []  # follow no more
        self._leads: list[tuple[str, int]] = []
        self._transitions: list[Transition] = []

    def reuse(self, row: ReuseKeyRow, ids: Sequence[int]) -> bool:
        """Let followers reuse a result; return whether all of these have."""
        for id in ids:
            task = self._tasks.get(id)
            if task is not None and self._follows(task):
                if not self._reuses.add(task, row):
                    return False
                self._transitions.append(reused(task))
            self._done.append(id)
        return True

    def lead(self, key: str, ids: Sequence[int]) -> bool:
        """Let the first follower lead a key; return whether there is one."""
        if self._transaction.reuse_budget < _LEADER_WEIGHT:
            return False
        for id in ids:
            task = self._tasks.get(id)
            self._done.append(id)
            if task is None or not self._follows(task):
                continue
            self._leads.append((key, id))
            self._transaction.reuse_budget -= _LEADER_WEIGHT
            self._transaction.request_admission(task, Signal.RELEASE)
            return True
        return False

    def write(self) -> list[Transition]:
        """Write it; return the transitions."""
        repo = self._transaction.repo.reuse
        repo.delete_followers(self._done)
        repo.lead(self._leads, self._rows)
        self._reuses.write()
        return self._transitions

    def _follows(self, task: TaskRecord) -> bool:
        """Tell whether a task still follows: it may have been canceled, or its graph."""
        return follows(task.life.state, task.reason) and not self._transaction.is_canceled(task.graph)


def reused(task: TaskRecord) -> Transition:
    """Make the transition of a task that reuses a result: it has no attempt in this round."""
    return Transition(task, Signal.REUSE, attempt_policy.reused(task.life), _REUSED)


# Keys.


_NO_KEYS: Final[Mapping[int, str]] = {}


def _keys(
    transaction: "Transaction",
    tasks: Sequence[TaskRecord],
    slices: Mapping[int, Sequence[int]],
    first_parts: Mapping[int, str] = _NO_KEYS,
) -> dict[int, list[_SliceKey | None]]:
    """Make the keys of some slices of tasks; None where nothing is reused. The first parts of some are known."""
    definitions = transaction.repo.tasks.owned_definitions([task.id for task in tasks if task.id not in first_parts])
    texts = {id: _texts(definition[1], slices[id]) for id, definition in definitions.items()}
    received, originals = _ReceivedFacts(transaction, tasks, texts), _originals(transaction.repo, texts.values())
    policies = transaction.reuse_policies()
    keys: dict[int, list[_SliceKey | None]] = {
        task.id: [
            _SliceKey(received_key(first_parts[task.id], received.results_of(task.id)), _policy(transaction, task))
        ]
        for task in tasks
        if task.id in first_parts
    }
    for id, found in texts.items():
        keys[id] = []
        for index, text in zip(slices[id], found, strict=True):
            policy, facts = policies.get(text.pool, DEFAULT_POLICY), received.of(id, index, text)
            if not policy.window_ms or facts is None:
                keys[id].append(None)
                continue
            submitter = None if policy.shared else definitions[id][2]
            keys[id].append(_SliceKey(key(text, submitter, facts, originals), policy))
    return keys


_NO_FACTS: Final = Received()


class _ReceivedFacts:
    """What the slices of some tasks receive beside their definitions."""

    def __init__(
        self, transaction: "Transaction", tasks: Sequence[TaskRecord], texts: Mapping[int, Sequence[SliceText]]
    ) -> None:
        met = [task.id for task in tasks if task.edges.met]
        if met:
            transaction.write_ends()
        self._results = _results(transaction, met)
        self._inputs = _files(transaction, [id for id in met if any(one.has_inputs for one in texts.get(id, ()))])
        self._secrets = transaction.repo.secrets.digests([task.id for task in tasks if task.is_constrained])

    def results_of(self, task: int) -> Received:
        """Return what a task receives that has neither secrets nor input files of its prerequisites."""
        return Received(self._results.get(task, ()))

    def of(self, task: int, index: int, text: SliceText) -> Received | None:
        """Return what a slice receives; None if that is not known."""
        if not (self._results or self._inputs or self._secrets):
            return _NO_FACTS
        secrets = self._secrets.get((task, index), {})
        if MISSING in secrets.values():
            return None
        inputs = tuple(sorted(self._inputs.get(task, ()))) if text.has_inputs else ()
        named = tuple(sorted(f"{variable}={digest}" for variable, digest in secrets.items()))
        return Received(self._results.get(task, ()), inputs, named)


def _files(transaction: "Transaction", tasks: Sequence[int]) -> dict[int, list[str]]:
    """Return the output files of the prerequisites of tasks."""
    found: dict[int, list[str]] = defaultdict(list)
    for one in transaction.repo.files.outputs_of_prerequisites(tasks):
        found[one.task].append(f"{one.label}={one.pool} {one.tree}")
    return found


def _results(transaction: "Transaction", tasks: Sequence[int]) -> dict[int, tuple[tuple[str, str], ...]]:
    """Return label and digest of each result that tasks receive."""
    digests: dict[str, str] = {}  # many tasks receive the same
    found: dict[int, set[tuple[str, str]]] = defaultdict(set)
    for task, label, body, stored in transaction.repo.reuse.received(tasks):
        digest = stored if body is None else digests.get(body) or digests.setdefault(body, digest_of_result(body))
        found[task].add((label, digest or ""))
    return {task: tuple(sorted(results)) for task, results in found.items()}


def _originals(repo: Repo, texts: Iterable[Sequence[SliceText]]) -> dict[str, str]:
    """Return the tasks that really ran in place of those that slices name and that reuse a result."""
    named = {id for found in texts for text in found for id in text.named[:IDS_MAX]}
    if not named:
        return {}
    return {
        text_of(Key(id)): text_of(Key(source)) for id, source in repo.reuse.originals(list(map(key_of, named))).items()
    }


class _Slice(msgspec.Struct):
    """The part of a slice that its key depends on."""

    kind: str
    payload: Any
    dimensions: Dimensions = ()


class _Definition(msgspec.Struct):
    slices: list[_Slice]


_READ: Final = msgspec.json.Decoder(_Definition).decode


def _texts(definition: str, slices: Sequence[int]) -> list[SliceText]:
    """Write slices of a definition as text."""
    found = _READ(definition).slices
    return [slice_text(found[index].kind, found[index].dimensions, found[index].payload) for index in slices]
