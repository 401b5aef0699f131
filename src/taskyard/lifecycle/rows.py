"""The rows of new tasks: from a validated graph, page by page. Nothing here reads or writes the store."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from taskyard.core import attempt_policy
from taskyard.core.attempt_policy import Life, Rules
from taskyard.core.graph.model import GraphDefinition, Slice, Task, digest
from taskyard.core.graph.parse import pools_named
from taskyard.core.graph.payload import SERVER_KINDS
from taskyard.core.graph.references import substitute
from taskyard.core.ids import Key, text_of
from taskyard.core.matching import Dimensions
from taskyard.core.states import Millis, On, Reason
from taskyard.core.structs import struct_replace
from taskyard.lifecycle.definitions import encoded
from taskyard.store.queries import Row
from taskyard.store.repo.tasks import ReusedAttempt
from taskyard.store.rows import encode_rules

_FIRST_STATE = Life().state.text
_FIRST_REASON = Reason.PREREQUISITE.text
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


def weight_of(tasks: Iterable[Task]) -> int:
    """Return how much work it is to write tasks."""
    extra_rows = [_extra_rows(task) for task in tasks]
    return weight(len(extra_rows), sum(extra_rows))


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
    reuses: list[Row] = field(default_factory=list)
    copies: list[Row] = field(default_factory=list)  # of results

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

    def __post_init__(self) -> None:
        # Whatever takes time for each task is computed here, on the caller's thread, to save the writer's time.
        _ = self.weight, self.dimensions, self.pools

    @cached_property
    def weight(self) -> int:
        """How much work it is to write them, counted in ordinary tasks."""
        return weight(len(self.tasks), sum(self._extra_rows))

    @cached_property
    def _extra_rows(self) -> Sequence[int]:
        if not self.reused:
            return [_extra_rows(task) for task in self.tasks]
        return [_extra_rows(task) + self._copied(task.label) for task in self.tasks]

    def _copied(self, label: str) -> int:
        """Return how many rows weigh as much as what a task reuses."""
        found = self.reused.get(label)
        return 0 if found is None else 1 + found.size // RESULT_PER_ROW

    @cached_property
    def dimensions(self) -> set[Dimensions]:
        """The dimensions of all slices that bots serve."""
        return {one.dimensions for task in self.tasks for one in task.slices if one.kind not in SERVER_KINDS}

    @cached_property
    def pools(self) -> frozenset[str]:
        """Every pool that one of them names, or a task of a graph inside them."""
        return pools_named(self.tasks)

    def pages(self, weight_max: int) -> Iterator[slice]:
        """Cut them into pages of at most this weight. A task that weighs more is alone in its page."""
        extra_rows, first = self._extra_rows, 0
        while first < len(extra_rows):
            count = count_fitting(extra_rows[first : first + weight_max], weight_max)
            yield slice(first, first + count)
            first += count

    def rows(self, page: slice, queues: Mapping[Dimensions, int], now: Millis, hidden: bool = False) -> Rows:
        """Make the rows of some of them."""
        rows, rules_cache = Rows(), _RulesCache(self.created_ms)
        for task in self.tasks[page]:
            self._add(rows, task, queues, rules_cache, (now, int(hidden)))
        return rows

    @cached_property
    def _names(self) -> Mapping[str, str]:
        """The ids that replace labels in payloads; empty if no payload has a $subs."""
        return {label: text_of(Key(id)) for label, id in self.ids.items()} if self.substitutes else {}

    def _add(
        self,
        rows: Rows,
        task: Task,
        queues: Mapping[Dimensions, int],
        rules_cache: "_RulesCache",
        now_and_loading: tuple[Millis, int],
    ) -> None:
        id = self.ids[task.label]
        rules = rules_cache.of(task)
        filled = _filled(task, self._names) if self.substitutes else task
        kept = digest(task) if filled is not task else self.digests.get(task.label)
        rows.tasks.append(_row(id, self, task, rules, queues, now_and_loading))
        rows.definitions.append((id, self.graph_id, task.label, encoded(filled), kept, self.submitter))
        rows.edges += [(self.ids[edge.task], id, edge.on.text) for edge in task.requires]
        if task.mutexes or task.limits:
            rows.mutexes += [(id, mutex.key, mutex.party) for mutex in task.mutexes]
            rows.limits += [(id, name, amount) for name, amount in task.limits]
        if self.reused and task.label in self.reused:
            _add_reused(rows, id, self.reused[task.label])


def root_labels(graph: GraphDefinition) -> Iterable[str]:
    """Return the labels of the tasks without prerequisites."""
    return (task.label for task in graph.tasks.values() if not task.requires)


def _add_reused(rows: Rows, id: int, reused: ReusedTask) -> None:
    source = reused.source
    rows.reuses.append((id, source.task, source.graph, source.attempt))
    if reused.copied is not None:
        rows.copies.append((id, *reused.copied))


def _extra_rows(task: Task) -> int:
    return len(task.requires) + len(task.mutexes) + len(task.limits)


class _RulesCache:
    """The rules of tasks, and their texts; most tasks of a graph have the same."""

    def __init__(self, submitted_ms: Millis) -> None:
        self._submitted_ms = submitted_ms
        self._known: dict[object, tuple[Rules, str]] = {}

    def of(self, task: Task) -> tuple[Rules, str]:
        shape = (task.reruns, task.retries, task.deadline, task.not_before, *_slice_rules(task.slices))
        found = self._known.get(shape)
        if found is None:
            rules = attempt_policy.rules_of(task, self._submitted_ms)
            found = self._known[shape] = (rules, encode_rules(rules))
        return found


def _slice_rules(slices: Sequence[Slice]) -> Row:
    if len(slices) == 1:
        return slices[0].expires_ms, slices[0].wait_for_capacity
    return tuple((one.expires_ms, one.wait_for_capacity) for one in slices)


def _row(
    id: int,
    new_tasks: NewTasks,
    task: Task,
    rules_and_text: tuple[Rules, str],
    queues: Mapping[Dimensions, int],
    now_and_loading: tuple[Millis, int],
) -> Row:
    rules, text = rules_and_text
    first = task.slices[0]
    served_by_bots = first.kind not in SERVER_KINDS
    now, hidden = now_and_loading
    return (
        id,
        new_tasks.graph_id,
        _FIRST_STATE,
        _FIRST_REASON,
        now,
        rules.not_before_ms,
        text,
        first.kind.text,
        task.priority,
        new_tasks.created_ms,
        task.weight if served_by_bots else 0,
        task.join.text,
        task.on_impossible.text,
        int(_handles(task)),
        int(bool(task.mutexes or task.limits)),
        len(task.requires),  # all of them awaited; none met, broken or impossible
        0,
        0,
        0,
        queues[first.dimensions] if served_by_bots else SERVER_QUEUE,
        rules.deadline_ms,
        hidden,
    )


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
