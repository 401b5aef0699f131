"""Reads a graph document, and the graphs inside it, into tasks and edges.

The document has passed `survey`. Reading goes on after a fault, so that all faults are listed; the result is only
valid if there is none.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

from taskyard.core.graph.errors import Fault, Faults, Path, quoted, word
from taskyard.core.graph.matrix import Choice, fill, refuse_inside_texts, refuse_unfilled
from taskyard.core.graph.model import (
    EDGES_MAX,
    FAULTS_MAX,
    NESTING_MAX,
    NOTHING,
    TASKS_MAX,
    URGENT_PRIORITIES,
    VALUES_MAX,
    Allowance,
    Edge,
    Existing,
    GraphDefinition,
    Mutex,
    Slice,
    Task,
    digest,
    room_bytes,
)
from taskyard.core.graph.payload import (
    ALONE,
    LAUNCHED_KINDS,
    SECRET_FIELDS,
    SERVER_KINDS,
    input_trees,
    labels_used,
    names_secrets,
    payloads,
    take_slices,
)
from taskyard.core.graph.references import Labels, Resolver, Wants, read_labels, refuse_subs
from taskyard.core.graph.scalars import find, size
from taskyard.core.graph.schema import GRAPH, NODE, TASK, survey
from taskyard.core.matching import pool_of
from taskyard.core.states import Kind, Millis

# Cycles: no task may require itself, directly or through others.
#
# Nothing recurses, so a cycle through every task of the largest graph is found like any other.


#: Labels of a long cycle that are shown at its start and at its end; the fault itself has all of them.
_HEAD, _TAIL = 20, 10

Requires = Mapping[str, tuple[Edge, ...]]


def cycles(requires: Requires) -> Iterator[tuple[str, ...]]:
    """Yield cycles that share no task until none is left or enough are shown; each from its first label."""
    if _is_in_order(requires):
        return
    unmet, dependents = _edges(requires)
    _release(unmet, dependents, [label for label in requires if not unmet[label]])
    place = {label: index for index, label in enumerate(requires)} if unmet else {}
    for _ in range(FAULTS_MAX):
        if not unmet:
            return
        cycle = _walk(requires, unmet)
        first = cycle.index(min(cycle, key=place.__getitem__))
        yield (*cycle[first:], *cycle[:first])
        _release(unmet, dependents, cycle)


def cycle_text(cycle: tuple[str, ...]) -> str:
    """Write a cycle as `a -> b -> a`, a long one without its middle."""
    names = [word(label) for label in (*cycle, cycle[0])]
    hidden = len(names) - _HEAD - _TAIL
    if hidden > 1:
        names[_HEAD:-_TAIL] = [f"({hidden} more)"]
    return " -> ".join(names)


def _is_in_order(requires: Requires) -> bool:
    """Whether every task comes after all that it requires, as in most documents: then there is no cycle."""
    seen = set[str]()
    for label, edges in requires.items():
        for edge in edges:
            if edge.task not in seen and edge.task in requires:
                return False
        seen.add(label)
    return True


def _edges(requires: Requires) -> tuple[dict[str, int], dict[str, list[str]]]:
    """Count the prerequisites of each task, and list its dependents; only tasks of this document matter."""
    unmet = dict.fromkeys(requires, 0)
    dependents: dict[str, list[str]] = {label: [] for label in requires}
    for label, edges in requires.items():
        for edge in edges:
            if edge.task in dependents:
                dependents[edge.task].append(label)
                unmet[label] += 1
    return unmet, dependents


def _release(unmet: dict[str, int], dependents: Mapping[str, list[str]], labels: Iterable[str]) -> None:
    """Remove `labels`, and all tasks that then have no prerequisite."""
    free = deque(labels)
    for label in free:
        del unmet[label]
    while free:
        for dependent in dependents[free.popleft()]:
            if dependent not in unmet:
                continue
            unmet[dependent] -= 1
            if not unmet[dependent]:
                del unmet[dependent]
                free.append(dependent)


def _walk(requires: Requires, unmet: Mapping[str, int]) -> list[str]:
    """Follow prerequisites from the first task that is left until one comes twice: every one left has another."""
    label, passed = next(iter(unmet)), dict[str, int]()
    while label not in passed:
        passed[label] = len(passed)
        label = next(edge.task for edge in requires[label] if edge.task in unmet)
    return list(passed)[passed[label] :]


Raw = Mapping[str, object]
Found = dict[str, object]

_UNVARIED: Choice = MappingProxyType({})
# The tables guarantee the field types, which a type checker cannot see.
_make_task = cast("Callable[..., Task]", Task)
_make_graph = cast("Callable[..., GraphDefinition]", GraphDefinition)


@dataclass(frozen=True, slots=True)
class Context:
    """What all graphs of one document share."""

    faults: Faults
    left: Allowance
    scheduler_id: str
    graph_id: str
    now: Millis | None
    sound: bool  # the survey found every value plain
    launched: bool = False  # the server made the document, to launch a template


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a graph document: at the top, or inside the payload of a task of another."""

    at: Path = ()
    existing: Existing = NOTHING
    marked: frozenset[str] | None = None  # the labels whose nodes hold marks; None: any may
    axes: frozenset[str] = frozenset()  # those of the matrices around it
    held: tuple[Mutex, ...] = ()  # by the tasks that it is inside of, for as long as it runs
    nesting: int = 0


def read_graph(document: object, place: Place, context: Context) -> tuple[GraphDefinition, tuple[str, ...]]:
    """Read a graph; the tasks that exist already are left out of it, and their labels given beside it."""
    found = GRAPH.read(document, place.at, context.faults)
    nodes = cast("Raw", found.pop("tasks", {}))
    existing, at = place.existing, (*place.at, "tasks")
    if existing.definitions:
        _refuse_changes(found, context.faults)
    labels = read_labels(nodes, existing.definitions, at, context.faults, context.left, place.axes)
    if not _affords(labels, at, context):
        return GraphDefinition(), ()
    room = _routing_room(cast("str", found.get("routing", existing.routing)), place.at, context)
    reader = _NodeReader(place, context, labels, room)
    tasks = {task.label: task for label, node in nodes.items() for task in reader.tasks(label, node)}
    _refuse_cycles(tasks, labels, at, context.faults)
    return _make_graph(tasks=MappingProxyType(tasks), **found), tuple(reader.echoes)


def _refuse_changes(found: Found, faults: Faults) -> None:
    for name in found:
        faults.add((name,), "cannot be changed by an extension; leave it out")


def _affords(labels: Labels, at: Path, context: Context) -> bool:
    before = context.left.tasks
    context.left.tasks -= labels.count()
    if context.left.tasks < 0:
        context.faults.add(at, f"makes more than {before} task{'s' * (before != 1)}; split it")
    if context.left.values < 0:
        context.faults.add(at, f"makes more than {VALUES_MAX} values; split it")
    return context.left.tasks >= 0 and context.left.values >= 0


def _routing_room(routing: str, at: Path, context: Context) -> int:
    room = room_bytes(context.scheduler_id, context.graph_id, routing)
    if room < 1:
        context.faults.add((*at, "routing"), f"makes routing keys {_bytes(1 - room)} too long; shorten it")
    return room


def _bytes(count: int) -> str:
    return f"{count} byte{'s' * (count > 1)}"


def _refuse_cycles(tasks: Mapping[str, Task], labels: Labels, at: Path, faults: Faults) -> None:
    for cycle in cycles({label: task.requires for label, task in tasks.items()}):
        place = (*at, labels.node_of(cycle[0]), "requires")
        faults.add(place, f"is a cycle, each requiring the next: {cycle_text(cycle)}; remove one edge", cycle)


@dataclass(slots=True)  # there are too many, too short-lived, to pay for freezing them
class _Node:
    """A node as its table has read it."""

    at: Path
    task: object  # None when it is missing
    wants: Wants
    parts: Found  # what it says of its task beside these


class _NodeReader:
    """Reads the nodes of one graph document."""

    def __init__(self, place: Place, context: Context, labels: Labels, routing_room: int) -> None:
        self.place = place
        self.context = context
        self.faults = context.faults
        self.labels = labels
        self.routing_room = routing_room
        self.resolver = Resolver(labels, context.faults, context.left)
        self.echoes: list[str] = []

    def tasks(self, label: str, value: object) -> Iterator[Task]:
        """Yield the new tasks of a node: one, or one for each combination of its matrix."""
        at = (*self.place.at, "tasks", label)
        found = NODE.read(value, at, self.faults)
        found.pop("matrix", None)
        # The table has checked the types.
        node = _Node(at, found.pop("task", None), found.pop("requires", ()), found)  # type: ignore[arg-type]
        for own, choice in self._combinations(label, node):
            before = self.faults.noted
            task = self._task(own, choice, node)
            if own in self.labels.old:
                self._compare(task, at, before)
                continue
            if task.deadline is not None and (fault := _deadline_fault(task, self.context.now)):
                self.faults.add((*at, "task", "deadline"), fault)
            yield task

    def _combinations(self, label: str, node: _Node) -> Iterable[tuple[str, Choice]]:
        matrix = self.labels.matrices.get(label)
        if matrix is None:
            return ((label, _UNVARIED),)
        refuse_inside_texts(node.task, (*node.at, "task"), self.faults)
        self.context.left.values -= size(node.task) * len(matrix.combinations)
        if self.context.left.values < 0:
            self.faults.add(node.at, f"makes more than {VALUES_MAX} values; split it")
            return ()
        return matrix.combinations.items()

    def _compare(self, task: Task, at: Path, before: int) -> None:
        """Decide whether a task that exists is an echo or redefined; a faulty one is neither."""
        if self.faults.noted > before or not self.context.sound:
            return
        if digest(task) == self.labels.old[task.label]:
            self.echoes.append(task.label)
        else:
            self.faults.redefined += 1
            self.faults.add(at, f"{quoted(task.label)} exists with another definition; use another label")

    def _task(self, own: str, choice: Choice, node: _Node) -> Task:
        edges = self.resolver.edges(node.wants, own, choice, (*node.at, "requires"))
        if self.context.left.edges < 0:
            self.faults.add((*self.place.at, "tasks"), f"makes more than {EDGES_MAX} edges; split it")
        parts: Found = {"slices": ()} if node.task is None else self._parts(choice, node.task, (*node.at, "task"))
        base = node.at[-1] if choice else ""
        for one in cast("tuple[Slice, ...]", parts["slices"]):
            if "inputs" in one.payload or one.kind is Kind.ANSIBLE:
                self._check_labels(edges, choice, node)
                break
        return _make_task(label=own, node=base, requires=edges, **node.parts, **parts)

    def _check_labels(self, edges: tuple[Edge, ...], choice: Choice, node: _Node) -> None:
        """Note files or results that are taken from a task that is no prerequisite: it may not have ended."""
        raw, known = fill(node.task, choice) if choice else node.task, {edge.task for edge in edges}
        for place, payload in payloads(raw, (*node.at, "task")) if isinstance(raw, dict) else ():
            for at, label in labels_used(payload):
                if label not in known:
                    meant = self.faults.meant(label, known) or "; add it to requires"
                    self.faults.add((*place, *at), f"{quoted(label)} is no prerequisite{meant}")

    def _parts(self, choice: Choice, task: object, at: Path) -> Found:
        """Read the task of a node, filled with the values of its combination."""
        raw = fill(task, choice) if choice else task
        parts = TASK.read(raw, at, self.faults)
        if not isinstance(raw, dict):
            return {"slices": ()}
        parts["slices"] = slices = take_slices(parts, at, self.faults)  # type: ignore[arg-type]
        if not self.context.launched:
            self._refuse_launched(slices, at)
        if self.place.held and "mutexes" in parts:
            self._refuse_held(cast("tuple[Mutex, ...]", parts["mutexes"]), at)
        if not slices or slices[0].kind in SERVER_KINDS:
            parts["weight"] = 0
            if parts.get("idempotent") and slices and slices[0].kind in ALONE:
                self.faults.add((*at, "idempotent"), f"means nothing to {ALONE[slices[0].kind]}; remove it")
            self._read_inner(raw, choice, at, cast("tuple[Mutex, ...]", parts.get("mutexes", ())))
        if self.place.marked is None or at[-2] in self.place.marked:
            self._refuse_marks(raw, choice, at)
        if "routing" in parts:
            self._refuse_key(cast("str", parts["routing"]), at)
        return parts

    def _refuse_launched(self, slices: tuple[Slice, ...], at: Path) -> None:
        """Note what only the server makes, when it launches a template."""
        for one in slices:
            if one.kind in LAUNCHED_KINDS:
                self.faults.add((*at, "payload", one.kind.text), "is made by the server; use `taskyard launch NAME`")

    def _refuse_marks(self, raw: Raw, choice: Choice, at: Path) -> None:
        """Note the marks that mean nothing here; those of a graph inside are its own."""
        inner = [(*place, "graph") for place, _ in payloads(raw, at)]
        marks = list(find(raw, at, leave=inner))
        refuse_unfilled(marks, choice, self.faults)
        refuse_subs(marks, self.labels, self.faults)

    def _refuse_held(self, mutexes: tuple[Mutex, ...], at: Path) -> None:
        """Note tasks that would wait for ever, for an outer task that waits for them."""
        held = {one.key: one.party for one in self.place.held}
        for one in mutexes:
            if one.key in held and (one.party is None or one.party != held[one.key]):
                self.faults.add((*at, "mutexes"), f"{quoted(one.key)} is held by the task around it; keep one of them")

    def _read_inner(self, raw: Raw, choice: Choice, at: Path, mutexes: tuple[Mutex, ...]) -> None:
        """Read the graphs inside a task, only to note what is wrong with them."""
        for place, payload in payloads(raw, at):
            inner = payload.get(Kind.GRAPH)
            if not isinstance(inner, dict):
                continue
            if self.place.nesting >= NESTING_MAX:
                self.faults.add((*place, "graph"), f"is nested too deep; at most {NESTING_MAX} graphs in each other")
                continue
            axes, held = self.place.axes | choice.keys(), (*self.place.held, *mutexes)
            where = Place((*place, "graph"), axes=axes, held=held, nesting=self.place.nesting + 1)
            read_graph(inner, where, self.context)

    def _refuse_key(self, routing: str, at: Path) -> None:
        if len(routing) > self.routing_room >= 1:
            excess = len(routing) - self.routing_room
            self.faults.add((*at, "routing"), f"makes a routing key {_bytes(excess)} too long; shorten it")


# Validation of a whole document.
#
# The document is any value that JSON or YAML text was parsed into. `validate` never raises, and a hostile document
# takes no longer than a large valid one.


@dataclass(frozen=True, slots=True)
class Validation:
    """A graph, or the faults that keep the document from being one; never both, never neither."""

    graph: GraphDefinition | None
    faults: tuple[Fault, ...] = ()
    echoes: tuple[str, ...] = ()  # labels that exist with the very same definition; left out of the graph
    redefines: bool = False  # nothing is wrong but that labels exist with another definition


def validate(  # noqa: PLR0913 - each says something else of where the document comes from
    document: object,
    *,
    scheduler_id: str = "taskyard",
    graph_id: str = "",
    existing: Existing = NOTHING,
    tasks_max: int = TASKS_MAX,
    now: Millis | None = None,
    launched: bool = False,
) -> Validation:
    """Read a graph document, or, given what exists, an extension; `now` is for deadlines that are over already.

    `launched`: the server made it, so it may have what only the server makes.
    """
    faults = Faults()
    surveyed = survey(document, faults)
    if not surveyed.readable:
        return Validation(None, faults.listed())
    left = Allowance(tasks=tasks_max, values=VALUES_MAX - surveyed.values)
    context = Context(faults, left, scheduler_id, graph_id, now, not faults.noted, launched)
    graph, echoes = read_graph(document, Place(existing=existing, marked=surveyed.marked), context)
    if faults.noted:
        return Validation(None, faults.listed(), redefines=faults.redefined == faults.noted)
    return Validation(graph, echoes=echoes)


# Graphs inside tasks, at any depth.


_GRAPHS = frozenset({Kind.GRAPH.text})
_TREES = frozenset({Kind.GRAPH.text, "inputs"})
_SECRETS = SECRET_FIELDS | {Kind.GRAPH.text}


def with_all_inside(task: Task) -> Iterator[Task]:
    """Yield a task and those of the graphs inside it. Of a graph that no longer passes there are none."""
    yield task
    for one in task.slices:
        if one.kind is Kind.GRAPH and (found := validate(one.payload[Kind.GRAPH], launched=True).graph) is not None:
            for inner in found.tasks.values():
                yield from with_all_inside(inner)


def tasks_with(tasks: Iterable[Task], fields: frozenset[str]) -> Collection[Task]:
    """Return those tasks of a graph whose payloads have one of these fields.

    Nearly all have none of them, so there is no call for each task (`benchmarks.submit`: 100 000 tasks).
    """
    found = {task.label: task for task in tasks for one in task.slices if not fields.isdisjoint(one.payload)}
    return found.values()


def pools_named(tasks: Collection[Task], special: Collection[Task] | None = None) -> frozenset[str]:
    """Return every pool that tasks name, or tasks of the graphs inside them; `special` has those with graphs inside.

    Every task that a bot runs names one. A task of the server that names none belongs to the pools of its graph.
    """
    asked = {one.dimensions for task in tasks for one in task.slices}
    for task in tasks_with(tasks if special is None else special, _GRAPHS):
        asked.update(one.dimensions for each in with_all_inside(task) for one in each.slices)
    return frozenset(map(pool_of, asked)) - {""}


def urgent_pools(tasks: Collection[Task]) -> dict[int, frozenset[str]]:
    """Return the priorities that need a right of their own, of tasks and those inside them, with the pools of each."""
    found: dict[int, set[str]] = {}
    urgent = [task for task in tasks if task.priority < URGENT_PRIORITIES]
    for task in (*urgent, *tasks_with(tasks, _GRAPHS)):
        for each in with_all_inside(task):
            if each.priority < URGENT_PRIORITIES:
                found.setdefault(each.priority, set()).update(pool_of(one.dimensions) for one in each.slices)
    return {priority: frozenset(pools - {""}) for priority, pools in found.items()}


def trees_named(tasks: Iterable[Task]) -> frozenset[tuple[str, str, str]]:
    """List the trees that tasks take, or those of the graphs inside them: label, pool and digest."""
    return frozenset(
        (task.label, pool_of(one.dimensions), tree)
        for task in tasks_with(tasks, _TREES)
        for each in with_all_inside(task)
        for one in each.slices
        if "inputs" in one.payload
        for tree in input_trees(one.payload)
    )


def secret_pools(tasks: Iterable[Task]) -> frozenset[str]:
    """Return the pools whose secrets tasks name, or the tasks of graphs inside them."""
    found: set[str] = set()
    for task in tasks_with(tasks, _SECRETS):
        slices = (one for each in with_all_inside(task) for one in each.slices)
        found.update(pool_of(one.dimensions) for one in slices if names_secrets(one.payload))
    return frozenset(found)


def _deadline_fault(task: Task, now: Millis | None) -> str | None:
    """Return why a task cannot meet its deadline: it is over by `now`, if that is known, or before the start."""
    deadline, start = task.deadline, task.not_before
    submitted = Millis(0) if now is None else now
    if deadline is None:
        return None
    if now is not None and deadline.moment(now) <= now:
        return "is in the past; move it ahead"
    # Without a now, a moment and a span cannot be compared.
    comparable = start is not None and (now is not None or deadline.fixed is start.fixed)
    if start is not None and comparable and deadline.moment(submitted) <= start.moment(submitted):
        return "must be later than not_before"
    return None
