"""Tasks as they are born: from a validated graph to rows, page by page. Nothing here touches a store."""

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

_BORN = Life().state.text
_WAITS = Reason.PREREQUISITE.text
#: The note "release those tasks of this graph that wait for nobody".
OPEN = "open"
#: The note "this graph is being extended",
LOAD = "load"
#: "show the tasks of this extension",
SHOW = "show"
#: and "drop what was loaded of this extension".
DROP = "drop"
#: The note "this graph has come to rest, and the task that it is inside of has to hear of it",
SETTLED = "settled"
#: and "end this graph, for the task that it is inside of is to end".
STOP = "stop"
#: The queue of tasks that the server runs itself.
SERVER_QUEUE = 0
#: How many rows are as much to write as a task is: itself and three edges, mutexes or limits. So a page of the largest
#: graph, which has two and a half edges for each task, is full of tasks first.
ROWS_PER_TASK: Final = 4
#: How many characters of a result are as much to copy as a row is to write.
RESULT_PER_ROW: Final = 1_024


def weight(tasks: int, beside: int) -> int:
    """Say how much it is to write some tasks with so many rows beside them, counted in ordinary tasks."""
    return max(tasks, -(-(tasks + beside) // ROWS_PER_TASK))


def weight_of(tasks: Iterable[Task]) -> int:
    """Say how much it is to write tasks."""
    beside = [_beside(task) for task in tasks]
    return weight(len(beside), sum(beside))


def count_fitting(beside: Sequence[int], most: int) -> int:
    """Say how many of some tasks, the first of them at least, are a page; `beside` counts the rows beside each."""
    rows = 0
    for place, more in enumerate(beside):
        rows += more
        if place and weight(place + 1, rows) > most:
            return place
    return len(beside)


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

    def parts(self, most: int) -> "Iterator[Rows]":
        """Cut off the edges beyond a page of that weight: a task can have more of them than a page."""
        edges, room = self.edges, most * ROWS_PER_TASK
        self.edges = edges[:room]
        yield self
        for first in range(room, len(edges), room):
            yield Rows(edges=edges[first : first + room])


@dataclass(frozen=True, slots=True)
class ReusedTask:
    """What a task takes over instead of running: the end of an attempt, and a result of so many characters."""

    source: ReusedAttempt
    copied: tuple[int, int] | None  # the task and the attempt whose result is copied
    size: int = 0


@dataclass(frozen=True)
class NewTasks:
    """The tasks of a new graph or of an extension, with their ids."""

    graph_id: int
    tasks: Sequence[Task]
    ids: Mapping[str, int]  # of every label that they may name, old ones included
    created_ms: Millis
    substitutes: bool  # some payload has a $subs
    reused: Mapping[str, ReusedTask] = field(default_factory=dict)  # by label
    digests: Mapping[str, str] = field(default_factory=dict)  # of definitions that are not as they were submitted
    submitter: str = ""  # whose tasks they are

    def __post_init__(self) -> None:
        # All that takes as long as there are tasks is done by the thread of whoever asks: the writer has no time.
        _ = self.weight, self.dimensions, self.pools

    @cached_property
    def weight(self) -> int:
        """How much there is to write."""
        return weight(len(self.tasks), sum(self._beside))

    @cached_property
    def _beside(self) -> Sequence[int]:
        if not self.reused:
            return [_beside(task) for task in self.tasks]
        return [_beside(task) + self._copied(task.label) for task in self.tasks]

    def _copied(self, label: str) -> int:
        """Say how many rows it is as much to write as what a task takes over."""
        found = self.reused.get(label)
        return 0 if found is None else 1 + found.size // RESULT_PER_ROW

    @cached_property
    def dimensions(self) -> set[Dimensions]:
        """Everything that some slice asks bots for."""
        return {one.dimensions for task in self.tasks for one in task.slices if one.kind not in SERVER_KINDS}

    @cached_property
    def pools(self) -> frozenset[str]:
        """Every pool that one of them names, or a task of a graph inside them."""
        return pools_named(self.tasks)

    def pages(self, most: int) -> Iterator[slice]:
        """Cut them into pages of at most that weight. A task that weighs more has one for itself."""
        beside, first = self._beside, 0
        while first < len(beside):
            count = count_fitting(beside[first : first + most], most)
            yield slice(first, first + count)
            first += count

    def rows(self, page: slice, queues: Mapping[Dimensions, int], now: Millis, hidden: bool = False) -> Rows:
        """Make the rows of some of them."""
        rows, promises = Rows(), _Promises(self.created_ms)
        for task in self.tasks[page]:
            self._add(rows, task, queues, promises, (now, int(hidden)))
        return rows

    @cached_property
    def _names(self) -> Mapping[str, str]:
        """The ids as they are put in the place of labels; none if no payload wants that."""
        return {label: text_of(Key(id)) for label, id in self.ids.items()} if self.substitutes else {}

    def _add(
        self,
        rows: Rows,
        task: Task,
        queues: Mapping[Dimensions, int],
        promises: "_Promises",
        how: tuple[Millis, int],
    ) -> None:
        id = self.ids[task.label]
        promise = promises.of(task)
        filled = _filled(task, self._names) if self.substitutes else task
        kept = digest(task) if filled is not task else self.digests.get(task.label)
        rows.tasks.append(_row(id, self, task, promise, queues, how))
        rows.definitions.append((id, self.graph_id, task.label, encoded(filled), kept, self.submitter))
        rows.edges += [(self.ids[edge.task], id, edge.on.text) for edge in task.requires]
        if task.mutexes or task.limits:
            rows.mutexes += [(id, mutex.key, mutex.party) for mutex in task.mutexes]
            rows.limits += [(id, name, amount) for name, amount in task.limits]
        if self.reused and task.label in self.reused:
            _take_over(rows, id, self.reused[task.label])


def root_labels(graph: GraphDefinition) -> Iterable[str]:
    """Name the tasks that wait for nobody."""
    return (task.label for task in graph.tasks.values() if not task.requires)


def _take_over(rows: Rows, id: int, reused: ReusedTask) -> None:
    source = reused.source
    rows.reuses.append((id, source.task, source.graph, source.attempt))
    if reused.copied is not None:
        rows.copies.append((id, *reused.copied))


def _beside(task: Task) -> int:
    return len(task.requires) + len(task.mutexes) + len(task.limits)


class _Promises:
    """The rules of tasks as text; most tasks of a graph share theirs."""

    def __init__(self, submitted: Millis) -> None:
        self._submitted = submitted
        self._known: dict[object, tuple[Rules, str]] = {}

    def of(self, task: Task) -> tuple[Rules, str]:
        shape = (task.reruns, task.retries, task.deadline, task.not_before, *_waits(task.slices))
        found = self._known.get(shape)
        if found is None:
            rules = attempt_policy.rules_of(task, self._submitted)
            found = self._known[shape] = (rules, encode_rules(rules))
        return found


def _waits(slices: Sequence[Slice]) -> Row:
    if len(slices) == 1:
        return slices[0].expires_ms, slices[0].wait_for_capacity
    return tuple((one.expires_ms, one.wait_for_capacity) for one in slices)


def _row(
    id: int,
    new_tasks: NewTasks,
    task: Task,
    promise: tuple[Rules, str],
    queues: Mapping[Dimensions, int],
    how: tuple[Millis, int],
) -> Row:
    rules, text = promise
    first = task.slices[0]
    served_by_bots = first.kind not in SERVER_KINDS
    now, hidden = how
    return (
        id,
        new_tasks.graph_id,
        _BORN,
        _WAITS,
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
    """Put the ids of tasks in the place of their labels."""
    slices = tuple(_filled_slice(one, names) for one in task.slices)
    same = all(new is old for new, old in zip(slices, task.slices, strict=True))
    return task if same else struct_replace(task, slices=slices)


def _filled_slice(one: Slice, names: Mapping[str, str]) -> Slice:
    payload = substitute(one.payload, names)
    return one if payload is one.payload else struct_replace(one, payload=payload)
