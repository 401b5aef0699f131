"""Rerun a settled graph from some of its tasks on: store a new graph that reuses the results of the other tasks.

The old graph is only read. This runs on the caller's thread; the new graph is stored like any other, in one transaction
or in pages.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from typing import Final

import msgspec

from taskyard.core.explain_text import counted
from taskyard.core.graph.errors import Fault, path_text
from taskyard.core.graph.model import GraphDefinition, Task, digest
from taskyard.core.graph.parse import pools_named
from taskyard.core.graph.references import renamed
from taskyard.core.graph.rerun import Renewal, named, renewal, timeless
from taskyard.core.graph.state import settled
from taskyard.core.ids import Key, text_of
from taskyard.core.retention import Kept
from taskyard.core.structs import struct_replace
from taskyard.engine.clock import Clock
from taskyard.engine.errors import outages
from taskyard.engine.submit import GraphSubmission, KeyGenerator, refuse_tasks_without_trees
from taskyard.lifecycle.commands import Code, Refusal
from taskyard.lifecycle.definitions import decoded
from taskyard.lifecycle.gc_pause import gc_paused
from taskyard.lifecycle.idempotency import KeyedSubmission, Submitter, answer_to, digest_under_key
from taskyard.lifecycle.rows import NewTasks, ReusedTask
from taskyard.lifecycle.selection import Pages, Selection, not_found
from taskyard.lifecycle.subgraph import ParentAttempt
from taskyard.lifecycle.submit import PAGE_MAX, NewGraph, RerunOrigin, Submitted
from taskyard.store.connection import Repo, Store
from taskyard.store.queries import Row
from taskyard.store.repo.tasks import FinishedTaskRow, RerunRow, ReusedAttempt

#: How many tasks one query reads.
ROWS_MAX: Final = 10_000
#: How many labels a summary names.
TOLD_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class _Plan:
    """The old graph, and which of its tasks rerun."""

    graph: Key
    definition: Row  # scheduler, name, routing, description, tags, digest
    tasks: Mapping[str, Task]  # by label, in the order of the older graph
    digests: Mapping[str, str]  # of the definitions that are not as they were submitted
    done: Mapping[str, FinishedTaskRow]
    labels: tuple[str, ...]
    named: frozenset[str]  # the tasks that these labels name: they really run, even if an equal result is known
    renewal: Renewal
    around: frozenset[str]  # the pools of the older graph

    @property
    def pools(self) -> frozenset[str]:
        """The pools in which tasks will run, also inside; if no task names one, those of the old graph."""
        return pools_named([self.tasks[label] for label in self.renewal.again]) or self.around

    @property
    def summary(self) -> str:
        """A summary of the rerun."""
        more = len(self.labels) - TOLD_MAX
        labels = ", ".join(self.labels[:TOLD_MAX]) + (f" and {more} more" if more > 0 else "")
        return f"graph {text_of(self.graph)} again from {labels}, {counted(len(self.renewal.reused), 'task')} reused"


class GraphRerun:
    """Reruns graphs."""

    def __init__(self, store: Store, clock: Clock, keys: KeyGenerator, submission: GraphSubmission) -> None:
        self._store = store
        self._clock = clock
        self._keys = keys
        self._submission = submission

    def renew(self, graph: Key, labels: Sequence[str], key: str, sender: Submitter) -> Submitted | Refusal:
        """Store a graph that reruns another from `labels` on."""
        body = _digest(graph, labels)
        answer = self._repeat(key, body) if key else None
        if answer is not None:
            return answer
        with outages(), self._store.read() as repo:
            plan = _read_plan(repo, graph, labels)
        if isinstance(plan, Refusal):
            return plan
        late = self._refuse_late(plan)
        if late is not None:
            return late
        again = [plan.tasks[label] for label in plan.renewal.again]
        sender.check(plan.pools, again)
        # Nothing may keep these trees but the old graph, which may be deleted in this moment.
        missing = refuse_tasks_without_trees(again, sender)
        if missing is not None:
            return missing
        with _gc_paused_for(plan):
            return self._submission.store(lambda: self._named(plan, body, key, sender))

    def resume(self, graph: Key, inside: ParentAttempt, other_pools: frozenset[str]) -> Submitted | Refusal | None:
        """Store the graph inside a workflow that is launched again, and start that task; None: try this again.

        It is the graph of the earlier launch, which takes over what its successful tasks left.
        """
        with outages(), self._store.read() as repo:
            plan = _read_plan(repo, graph, ())
        if isinstance(plan, Refusal):
            return Refusal(Code.INVALID, plan.text, plan.faults)
        sender = Submitter(f"task {text_of(Key(inside.task))}-{inside.attempt}", inside.submitter, user=inside.user)
        named = self._named(plan, _digest(graph, ()), "", sender)
        new_tasks = replace(named.submission.new_tasks, other_pools=other_pools)
        submission = replace(named.submission, new_tasks=new_tasks, parent=inside)
        with _gc_paused_for(plan):
            return self._submission.store_inside(replace(named, submission=submission))

    def _repeat(self, key: str, body: str) -> Submitted | Refusal | None:
        """Find the earlier answer to a key: the old graph may have changed since."""
        with outages(), self._store.read() as repo:
            return answer_to(repo, key, digest_under_key(body))

    def _refuse_late(self, plan: _Plan) -> Refusal | None:
        """Refuse to rerun tasks whose deadlines have passed."""
        now = self._clock.now()
        deadlines = ((label, plan.tasks[label].deadline) for label in plan.tasks if label in plan.renewal.again)
        late = [label for label, when in deadlines if when is not None and when.fixed and when.ms <= now]
        if not late:
            return None
        faults = tuple(Fault(path_text(("tasks", label)), "its deadline has passed") for label in late)
        passed = f"{counted(len(late), 'deadline')} {'has' if len(late) == 1 else 'have'} passed"
        text = f"{passed}: submit the graph with later ones"
        return Refusal(Code.CONFLICT, f"cannot run graph {text_of(plan.graph)} again: {text}", faults)

    def _named(self, plan: _Plan, body: str, key: str, sender: Submitter) -> KeyedSubmission:
        minted = self._keys.generate(len(plan.tasks))
        ids = {label: int(id) for label, id in zip(plan.tasks, minted.tasks, strict=True)}
        tasks = _new_graph_tasks(plan, ids)
        reused = {label: _reused(plan, label) for label in plan.tasks if label in plan.renewal.reused}
        ordered = [tasks[label] for label in _in_order(tasks)]
        digests = {**plan.digests, **_changed(plan, tasks)}
        sources = {label: int(plan.done[label].id) for label in plan.renewal.again if label in plan.done}
        new_tasks = NewTasks(minted.graph, ordered, ids, minted.created_ms, False, reused, digests)
        new_tasks = replace(new_tasks, submitter=sender.submitter, user=sender.user, sources=sources, to_run=plan.named)
        scheduler, name, routing, description, tags, _ = plan.definition
        row = RerunRow(plan.graph, plan.labels, len(plan.renewal.again), len(reused))
        origin = RerunOrigin(row, plan.summary, _pages(tasks, ids, reused))
        definition = (scheduler, name, routing, description, tags, body)
        graph = GraphDefinition(name, routing, tasks, description)
        submission = NewGraph(graph, new_tasks, definition, self._clock.word(), sender.actor, origin=origin)
        return KeyedSubmission(submission, key)


# Read the old graph.


def _read_plan(repo: Repo, graph: Key, names: Sequence[str]) -> _Plan | Refusal:
    found, definition = repo.graphs.peek([graph]), repo.graphs.definition(graph)
    if not found or found[0].loader is not None or definition is None:
        return not_found("graph", graph)
    if Kept.RESULTS in repo.retention.purged_parts([graph]).get(graph, ()):
        text = f"the results of graph {text_of(graph)} are deleted, so none can be reused: submit it again"
        return Refusal(Code.CONFLICT, text)
    if not settled(found[0].tally):
        text = f"graph {text_of(graph)} is still moving: wait until it is settled, or cancel it"
        return Refusal(Code.CONFLICT, text)
    rows = {id: (label, decoded(text), kept) for id, label, text, kept in repo.tasks.definitions_of(graph)}
    tasks = {rows[id][0]: rows[id][1] for id in sorted(rows)}
    labels, faults = named(names, {label: task.node for label, task in tasks.items()})
    if faults:
        return Refusal(Code.INVALID, f"graph {text_of(graph)} has no such task", faults)
    done = {rows[row.id][0]: row for row in _done(repo, graph)}
    requires = {label: [edge.task for edge in task.requires] for label, task in tasks.items()}
    plan = renewal(requires, {label: row.state for label, row in done.items()}, labels)
    digests = {label: kept for label, _, kept in rows.values() if kept is not None}
    around = repo.graphs.pools_of([graph])[graph]
    start = frozenset(labels)
    return _Plan(graph, definition, tasks, digests, done, tuple(dict.fromkeys(names)), start, plan, around)


def _done(repo: Repo, graph: int) -> list[FinishedTaskRow]:
    found: list[FinishedTaskRow] = []
    after = -1
    while page := repo.reuse.finished_tasks(graph, after, ROWS_MAX):
        found += page
        after = page[-1].id
    return found


# Make the new graph.


def _new_graph_tasks(plan: _Plan, ids: Mapping[str, int]) -> dict[str, Task]:
    """Return the tasks of the new graph, with ids of old tasks replaced by those of the new ones."""
    if plan.digests:
        names = {text_of(Key(row.id)): text_of(Key(ids[label])) for label, row in plan.done.items()}
        tasks = {label: _renamed(one, names) if label in plan.digests else one for label, one in plan.tasks.items()}
    else:
        tasks = dict(plan.tasks)
    # A reused task does not run, so it needs no deadline, which may have passed.
    for label in plan.renewal.reused:
        if not timeless(tasks[label]):
            tasks[label] = struct_replace(tasks[label], deadline=None, not_before=None)
    return tasks


def _changed(plan: _Plan, tasks: Mapping[str, Task]) -> dict[str, str]:
    """Return the digests, as submitted, of the tasks that were changed here."""
    changed = (label for label in tasks if tasks[label] is not plan.tasks[label] and label not in plan.digests)
    return {label: digest(plan.tasks[label]) for label in changed}


def _renamed(task: Task, names: Mapping[str, str]) -> Task:
    slices = (struct_replace(one, payload=renamed(one.payload, names)) for one in task.slices)
    return struct_replace(task, slices=tuple(slices))


def _reused(plan: _Plan, label: str) -> ReusedTask:
    """Return what a task reuses; a task that reused a result itself names the original source."""
    row = plan.done[label]
    copied = None if row.size is None else (row.id, row.attempt)
    return ReusedTask(row.source or ReusedAttempt(row.id, plan.graph, row.attempt), copied, row.size or 0)


def _in_order(tasks: Mapping[str, Task]) -> list[str]:
    """Order tasks by their requirements."""
    requires = {label: [edge.task for edge in task.requires] for label, task in tasks.items()}
    return list(TopologicalSorter(requires).static_order())


def _pages(tasks: Mapping[str, Task], ids: Mapping[str, int], reused: Mapping[str, ReusedTask]) -> Pages:
    """Cut the reused tasks into pages, dependents before what they require, as `reuse` needs them."""
    order: TopologicalSorter[int] = TopologicalSorter(dict.fromkeys(ids.values(), ()))
    to_tell = Counter[int]()
    for label, task in tasks.items():
        for edge in task.requires:
            order.add(ids[edge.task], ids[label])
            to_tell[ids[edge.task]] += 1
    wanted = {ids[label] for label in reused}
    pages = Selection(order, to_tell).pages() if wanted else []
    return [[id for id in page if id in wanted] for page in pages]


def _digest(graph: Key, labels: Sequence[str]) -> str:
    """Return the digest of a request."""
    said = msgspec.json.encode(("rerun", int(graph), sorted(set(labels))))
    return hashlib.sha256(said).hexdigest()


def _gc_paused_for(plan: _Plan) -> AbstractContextManager[None]:
    """Pause the garbage collector while a large graph is stored."""
    return gc_paused() if len(plan.tasks) > PAGE_MAX else nullcontext()
