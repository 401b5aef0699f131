"""The rows of new tasks: from a validated graph, page by page. Nothing here reads or writes the store."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Final

from taskyard.core import attempt_policy
from taskyard.core.attempt_policy import Life, Rules
from taskyard.core.caches import cache_key
from taskyard.core.graph.model import Slice, Task, digest
from taskyard.core.graph.parse import pools_named, tasks_with, trees_named
from taskyard.core.graph.payload import (
    CACHE_FIELDS,
    HAS_SECRET_BYTES,
    SECRET_FIELDS,
    SERVER_KINDS,
    cache_names,
    names_secrets,
    secrets_of,
)
from taskyard.core.graph.references import substitute
from taskyard.core.ids import Key, text_of
from taskyard.core.matching import Dimensions, pool_of
from taskyard.core.reuse import early_key, slice_text
from taskyard.core.states import Kind, Millis, On, Reason
from taskyard.core.structs import struct_replace
from taskyard.core.tags import all_tags, tag_runs, user_of
from taskyard.lifecycle.definitions import encoded
from taskyard.store.queries import Row
from taskyard.store.repo.admission import CONSTRAINED, NAMES_SECRETS
from taskyard.store.repo.bots import encode_caches
from taskyard.store.repo.tasks import ReusedAttempt
from taskyard.store.rows import UPDATES, encode_rules

_FIRST_STATE = Life().state.text
_FIRST_REASON = Reason.PREREQUISITE.text
#: The fields of payloads that name secrets, and all that few payloads have and tasks are searched for.
_SECRETS: Final = SECRET_FIELDS | {HAS_SECRET_BYTES}
_SPECIAL: Final = _SECRETS | CACHE_FIELDS | {"inputs", Kind.GRAPH.text}
# Kinds of continuations.
#: "Release the root tasks of this graph".
OPEN = "open"
#: "An extension of this graph is being loaded".
LOAD = "load"
#: "Make the tasks of this extension visible".
SHOW = "show"
#: "Drop what was loaded of this extension".
DROP = "drop"
#: "This graph has settled, and the task around it has to end".
SETTLED = "settled"
#: "Cancel this graph, because the task around it has to end".
STOP = "stop"
#: "Cancel this update, unless another launch needs it".
RELEASE_UPDATE = "release_update"
#: Where the row of a new task has its queue.
QUEUE_COLUMN: Final = 19
#: The queue of tasks that the server runs itself.
SERVER_QUEUE = 0
#: How many rows weigh as much as an ordinary task: its own and three edges, mutexes or limits. So the number of tasks
#: limits a page of the largest graph, which has two and a half edges for each task.
ROWS_PER_TASK: Final = 4
#: How many characters of a result to copy weigh as much as a row.
RESULT_PER_ROW: Final = 1_024


def weight(tasks: int, extra_rows: int) -> int:
    """Return how much work it is to write tasks with so many extra rows, counted in ordinary tasks."""
    return max(tasks, -(-(tasks + extra_rows) // ROWS_PER_TASK))


def count_fitting(extra_rows: Sequence[int], weight_max: int) -> int:
    """Return how many of some tasks fit into a page, at least one; `extra_rows` are counted for each task."""
    rows = 0
    for place, more in enumerate(extra_rows):
        rows += more
        if place and weight(place + 1, rows) > weight_max:
            return place
    return len(extra_rows)


@dataclass(slots=True)
class Rows:
    """The rows of some new tasks, by table."""

    tasks: list[Row] = field(default_factory=list)
    definitions: list[Row] = field(default_factory=list)
    edges: list[Row] = field(default_factory=list)
    mutexes: list[Row] = field(default_factory=list)
    limits: list[Row] = field(default_factory=list)
    tags: list[Row] = field(default_factory=list)
    reuses: list[Row] = field(default_factory=list)
    copies: list[Row] = field(default_factory=list)  # of results
    input_trees: list[Row] = field(default_factory=list)
    secrets: list[Row] = field(default_factory=list)  # that they name
    secret_bytes: list[Row] = field(default_factory=list)
    updates: list[Row] = field(default_factory=list)  # of resources
    link_copies: list[tuple[int, int]] = field(default_factory=list)  # the link whose update each stands for, too
    secret_copies: list[tuple[int, int]] = field(default_factory=list)  # the task whose secret bytes each gets
    reserved: list[tuple[str, int, int]] = field(default_factory=list)  # keys of idempotent tasks, priorities, tasks

    def parts(self, weight_max: int) -> "Iterator[Rows]":
        """Split off the edges that exceed a page of this weight: a single task can have more."""
        edges, count = self.edges, weight_max * ROWS_PER_TASK
        self.edges = edges[:count]
        yield self
        for first in range(count, len(edges), count):
            yield Rows(edges=edges[first : first + count])


@dataclass(frozen=True, slots=True)
class ReusedTask:
    """What a task reuses instead of running: the end of an attempt, and a result of so many characters."""

    source: ReusedAttempt
    copied: tuple[int, int] | None  # the task and the attempt whose result is copied
    size: int = 0


@dataclass(frozen=True)
class NewTasks:
    """The tasks of a new graph or of an extension, with their ids."""

    graph_id: int
    tasks: Sequence[Task]
    ids: Mapping[str, int]  # by label; includes the existing tasks that they may refer to
    created_ms: Millis
    substitutes: bool  # some payload has a $subs
    reused: Mapping[str, ReusedTask] = field(default_factory=dict)  # by label
    digests: Mapping[str, str] = field(default_factory=dict)  # of definitions that are not as they were submitted
    submitter: str = ""  # the owner of the tasks
    user: str = ""  # the user of the tasks, unless their tags name another
    secret_bytes: Callable[[int], Row] | None = None  # makes the row of the secret bytes for a task
    sources: Mapping[str, int] = field(default_factory=dict)  # by label, the task that one runs again
    to_run: frozenset[str] = frozenset()  # labels of idempotent tasks that reuse nothing
    other_pools: frozenset[str] = frozenset()  # where what they launch runs
    updates: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # by label: the resource, and its content

    def __post_init__(self) -> None:
        # Whatever takes time for each task is computed here, on the caller's thread, to save the writer's time.
        _ = self.weight, self.dimensions, self.pools, self._keys, self._rules, self._with_extras

    @cached_property
    def weight(self) -> int:
        """How much work it is to write them, counted in ordinary tasks."""
        return weight(len(self.tasks), sum(self._extra_rows))

    @cached_property
    def _tags(self) -> Sequence[tuple[str, ...]]:
        """The tags of each task; most tasks of a graph have the same."""
        known: dict[object, tuple[str, ...]] = {}
        tags: list[tuple[str, ...]] = []
        for task in self.tasks:
            slices = task.slices
            dimensions = slices[0].dimensions if len(slices) == 1 else tuple(map(_dimensions, slices))
            shape = (task.priority, task.tags, dimensions)
            found = known.get(shape)
            if found is None:
                found = known[shape] = all_tags(task, self.user)
            tags.append(found)
        return tags

    @cached_property
    def _rules(self) -> Sequence[tuple[Rules, str]]:
        """The rules of each task, and their text; most tasks of a graph share theirs (`benchmarks.submit`)."""
        known: dict[object, tuple[Rules, str]] = {}
        rules: list[tuple[Rules, str]] = []
        for task in self.tasks:
            slices, reuses = task.slices, task.idempotent and task.label not in self.to_run
            waits = (
                (slices[0].expires_ms, slices[0].wait_for_capacity) if len(slices) == 1 else tuple(map(_wait, slices))
            )
            shape = (task.reruns, task.retries, task.deadline, task.not_before, reuses, waits)
            found = known.get(shape)
            if found is None:
                own = attempt_policy.rules_of(struct_replace(task, idempotent=reuses), self.created_ms)
                found = known[shape] = (own, encode_rules(own))
            rules.append(found)
        return rules

    @cached_property
    def _special(self) -> Collection[Task]:
        """The tasks with fields that few have: each search for some of these looks at few tasks."""
        return tasks_with(self.tasks, _SPECIAL)

    @cached_property
    def _extra_rows(self) -> Sequence[int]:
        extra_rows = [len(task.requires) + len(task.mutexes) + len(task.limits) for task in self.tasks]
        if self._with_secrets:
            extra_rows = [rows + self._secrets_of(task) for rows, task in zip(extra_rows, self.tasks, strict=True)]
        if self.reused:
            extra_rows = [rows + self._copied(task.label) for rows, task in zip(extra_rows, self.tasks, strict=True)]
        if self._trees:
            own_trees = [len(self._trees.get(task.label, ())) for task in self.tasks]
            extra_rows = [rows + more for rows, more in zip(extra_rows, own_trees, strict=True)]
        if self._keys:
            extra_rows = [rows + (task.label in self._keys) for rows, task in zip(extra_rows, self.tasks, strict=True)]
        # Neighbours with the same tags share their rows.
        differ = [one is not other for one, other in pairwise(self._tags)]
        if any(differ):
            own = zip(extra_rows, (False, *differ), self._tags, strict=True)
            extra_rows = [rows + len(tags) if differs else rows for rows, differs, tags in own]
        return extra_rows

    def _copied(self, label: str) -> int:
        """Return how many rows weigh as much as what a task reuses."""
        found = self.reused.get(label)
        return 0 if found is None else 1 + found.size // RESULT_PER_ROW

    @cached_property
    def _with_secrets(self) -> frozenset[str]:
        """The labels of the tasks that need secrets to run."""
        return frozenset(task.label for task in tasks_with(self._special, _SECRETS) if _names_secrets(task))

    def _secrets_of(self, task: Task) -> int:
        """Return how many secrets a task names."""
        return sum(1 for _ in _secret_rows(task)) if task.label in self._with_secrets else 0

    @cached_property
    def _keys(self) -> Mapping[str, str]:
        """The keys that idempotent tasks have if they receive nothing, by label."""
        found = {}
        for task in self.tasks:
            if task.idempotent and (one := self._key(task)) is not None:
                found[task.label] = one
        return found

    def _key(self, task: Task) -> str | None:
        label, first = task.label, task.slices[0]
        if label in self.reused or label in self.to_run or label in self._with_secrets:
            return None
        if self.substitutes and _filled(task, self._names) is not task:
            return None
        text = slice_text(first.kind, first.dimensions, first.payload)
        return early_key(text, self.submitter, bool(task.requires))

    @cached_property
    def _with_caches(self) -> Mapping[str, str]:
        """The keys of the caches that tasks use, by label."""
        using = tasks_with(self._special, CACHE_FIELDS)
        return {task.label: keys for task in using if (keys := _caches(task, self.submitter)) is not None}

    @cached_property
    def dimensions(self) -> set[Dimensions]:
        """The dimensions of all slices that bots serve."""
        return {one.dimensions for task in self.tasks for one in task.slices if one.kind not in SERVER_KINDS}

    @cached_property
    def pools(self) -> frozenset[str]:
        """Every pool that one of them names, or a task of a graph inside them or of a launch."""
        return pools_named(self.tasks, self._special) | self.other_pools

    def pages(self, weight_max: int) -> Iterator[slice]:
        """Cut them into pages of at most this weight. A task that weighs more is alone in its page."""
        extra_rows, first = self._extra_rows, 0
        while first < len(extra_rows):
            count = count_fitting(extra_rows[first : first + weight_max], weight_max)
            yield slice(first, first + count)
            first += count

    def rows(self, page: slice, queues: Mapping[Dimensions, int], now: Millis, hidden: bool = False) -> Rows:
        """Make the rows of some of them."""
        rows = Rows()
        for task, rules in zip(self.tasks[page], self._rules[page], strict=True):
            self._add(rows, task, rules, queues, (now, int(hidden)))
        tagged = ((row[0], tags) for row, tags in zip(rows.tasks, self._tags[page], strict=True))
        rows.tags = list(tag_runs(sorted(tagged)))
        return rows

    @cached_property
    def _trees(self) -> Mapping[str, Collection[str]]:
        """The trees that tasks take, by label."""
        found: dict[str, set[str]] = {}
        for label, _, tree in trees_named(self._special):
            found.setdefault(label, set()).add(tree)
        return found

    @cached_property
    def _with_extras(self) -> Collection[str]:
        """The labels of the tasks that have rows of the kinds that few tasks have."""
        return self._with_secrets.union(self.reused, self.sources, self.updates, self._keys, self._trees)

    @cached_property
    def _names(self) -> Mapping[str, str]:
        """The ids that replace labels in payloads; empty if no payload has a $subs."""
        return {label: text_of(Key(id)) for label, id in self.ids.items()} if self.substitutes else {}

    def _add(
        self,
        rows: Rows,
        task: Task,
        rules: tuple[Rules, str],
        queues: Mapping[Dimensions, int],
        now_and_loading: tuple[Millis, int],
    ) -> None:
        id = self.ids[task.label]
        filled = _filled(task, self._names) if self.substitutes else task
        kept = digest(task) if filled is not task else self.digests.get(task.label)
        rows.tasks.append(self._row(id, task, rules, queues, now_and_loading))
        rows.definitions.append(
            (id, self.graph_id, task.label, encoded(filled), kept, self.submitter, user_of(task, self.user))
        )
        rows.edges += [(self.ids[edge.task], id, edge.on.text) for edge in task.requires]
        if task.mutexes or task.limits:
            rows.mutexes += [(id, mutex.key, mutex.party) for mutex in task.mutexes]
            rows.limits += [(id, name, amount) for name, amount in task.limits]
        if task.label in self._with_extras:
            self._add_extras(rows, id, task)

    def _add_extras(self, rows: Rows, id: int, task: Task) -> None:
        if task.label in self.reused:
            _add_reused(rows, id, self.reused[task.label])
        elif task.label in self._with_secrets:
            self._add_secrets(rows, id, task)
        elif task.label in self.sources and task.slices[0].kind is Kind.LINK:
            rows.link_copies.append((id, self.sources[task.label]))
        if task.label in self.updates:
            rows.updates.append((id, *self.updates[task.label], self.graph_id))
        if task.label in self._keys:
            rows.reserved.append((self._keys[task.label], task.priority, id))
        rows.input_trees += [(id, tree) for tree in self._trees.get(task.label, ())]

    def _row(
        self,
        id: int,
        task: Task,
        rules_and_text: tuple[Rules, str],
        queues: Mapping[Dimensions, int],
        now_and_loading: tuple[Millis, int],
    ) -> Row:
        first, (rules, text) = task.slices[0], rules_and_text
        served_by_bots = first.kind not in SERVER_KINDS
        now, hidden = now_and_loading
        constraints = (CONSTRAINED if task.mutexes or task.limits else 0) | (
            UPDATES if task.label in self.updates else 0
        )
        return (
            id,
            self.graph_id,
            _FIRST_STATE,
            _FIRST_REASON,
            now,
            rules.not_before_ms,
            text,
            first.kind.text,
            task.priority,
            self.created_ms,
            task.weight if served_by_bots else 0,
            task.join.text,
            task.on_impossible.text,
            int(_handles(task)),
            constraints | NAMES_SECRETS if task.label in self._with_secrets else constraints,
            len(task.requires),  # all of them awaited; none met, broken or impossible
            0,
            0,
            0,
            queues[first.dimensions] if served_by_bots else SERVER_QUEUE,
            rules.deadline_ms,
            hidden,
            self._with_caches.get(task.label),
        )

    def _add_secrets(self, rows: Rows, id: int, task: Task) -> None:
        rows.secrets += [(id, *row) for row in _secret_rows(task)]
        if self.secret_bytes is not None:
            rows.secret_bytes.append(self.secret_bytes(id))
        elif task.slices[0].payload.get(HAS_SECRET_BYTES) and task.label in self.sources:
            rows.secret_copies.append((id, self.sources[task.label]))


def _add_reused(rows: Rows, id: int, reused: ReusedTask) -> None:
    source = reused.source
    rows.reuses.append((id, source.task, source.graph, source.attempt))
    if reused.copied is not None:
        rows.copies.append((id, *reused.copied))


def _names_secrets(task: Task) -> bool:
    """Tell whether a task needs secrets to run."""
    return any(
        one.kind not in SERVER_KINDS and (HAS_SECRET_BYTES in one.payload or names_secrets(one.payload))
        for one in task.slices
    )


def _secret_rows(task: Task) -> Iterator[tuple[int, str, str, str, int]]:
    """Yield the secrets that a task names: slice, variable, pool, name, whether it is a file."""
    for index, one in enumerate(task.slices):
        for secret in secrets_of(one.payload):
            pool = pool_of(one.dimensions) if secret.name else ""
            yield index, secret.variable, pool, secret.name, int(secret.is_file)


def _dimensions(one: Slice) -> Dimensions:
    return one.dimensions


def _wait(one: Slice) -> tuple[int, bool]:
    return one.expires_ms, one.wait_for_capacity


def _caches(task: Task, submitter: str) -> str | None:
    """Return the keys of the caches that any slice of a task uses; None if there are none."""
    used = {name for one in task.slices for name in cache_names(one.payload)}
    return encode_caches(cache_key(name, submitter) for name in sorted(used)) if used else None


def _handles(task: Task) -> bool:
    for edge in task.requires:  # noqa: SIM110 - half the time of `any`
        if edge.on is not On.SUCCESS:
            return True
    return False


def _filled(task: Task, names: Mapping[str, str]) -> Task:
    """Replace labels of tasks by their ids."""
    slices = tuple(_filled_slice(one, names) for one in task.slices)
    same = all(new is old for new, old in zip(slices, task.slices, strict=True))
    return task if same else struct_replace(task, slices=slices)


def _filled_slice(one: Slice, names: Mapping[str, str]) -> Slice:
    payload = substitute(one.payload, names)
    return one if payload is one.payload else struct_replace(one, payload=payload)
