"""What the labels of one graph mean: a task, all combinations of a matrix, or a task that exists already."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from taskyard.core.graph.errors import Faults, Path, quoted
from taskyard.core.graph.matrix import (
    NO_MATRIX,
    Choice,
    Matrix,
    fill,
    read_matrix,
    read_scalar,
    read_where,
    refuse_unfilled,
)
from taskyard.core.graph.model import AXES_MAX, NAME_MAX, Allowance, Edge, Payload
from taskyard.core.graph.scalars import (
    REQUIRED,
    SUBS,
    Field,
    Level,
    Mark,
    Reader,
    choice,
    find,
    is_mark,
    name_fault,
    record,
    replace,
    text,
)
from taskyard.core.states import Kind, On


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels that a graph document can refer to."""

    nodes: Mapping[str, object]  # the document's own
    plain: Mapping[str, object]  # those of them that are one task
    matrices: Mapping[str, Matrix]  # those of them that stand for combinations
    made: Mapping[str, str]  # a combination's label -> its node's
    old: Mapping[str, str]  # those of the graph that is extended

    def are_task(self, label: str) -> bool:
        """Whether a label is exactly one task's."""
        return label in self.plain or label in self.made or (label in self.old and label not in self.matrices)

    def node_of(self, label: str) -> str:
        """Return the node that a task comes from."""
        return self.made.get(label, label)

    def count(self) -> int:
        """Count the tasks of the graph once this document is added."""
        return len(self.old) + sum(1 for label in chain(self.plain, self.made) if label not in self.old)

    def unknown(self, label: str, at: Path, faults: Faults) -> None:
        """Note an unknown label."""
        meant = faults.meant(label, self.nodes, self.made, self.old) or "; no task of the graph has it"
        faults.add(at, f"unknown label {quoted(label)}{meant}")


def read_labels(
    nodes: Mapping[str, object],
    old: Mapping[str, str],
    at: Path,
    faults: Faults,
    left: Allowance,
    taken: frozenset[str],
) -> Labels:
    """Check every label and expand the matrices, within the allowance; `taken` are axes of outer matrices."""
    matrices: dict[str, Matrix] = {}
    made: dict[str, str] = {}
    for label, node in nodes.items():
        if fault := name_fault(label):
            faults.add((*at, label), f"label {fault}")
        if isinstance(node, dict) and "matrix" in node:
            place = (*at, label, "matrix")
            affordable = not fault and len(made) <= left.tasks and left.values >= 0
            matrices[label] = read_matrix(node["matrix"], label, place, faults, taken) if affordable else NO_MATRIX
            left.values -= len(matrices[label].combinations)
            _add_made(made, label, matrices[label], place, faults)
    plain = {label: node for label, node in nodes.items() if label not in matrices} if matrices else nodes
    labels = Labels(nodes, plain, matrices, made, old)
    _refuse_clashes(labels, at, faults)
    return labels


def _add_made(made: dict[str, str], base: str, matrix: Matrix, at: Path, faults: Faults) -> None:
    for label in matrix.combinations:
        if fault := name_fault(label):
            faults.add(at, f"makes the label {quoted(label)}, which {fault}")
        if label in made:
            faults.add(at, f"makes the label {quoted(label)}, which {quoted(made[label])} makes too; rename one")
        made[label] = base


def _refuse_clashes(labels: Labels, at: Path, faults: Faults) -> None:
    for label, base in labels.made.items():
        if label in labels.nodes:
            faults.add((*at, label), f"is a label that the matrix of {quoted(base)} makes too; rename one")
    for base in labels.matrices:
        if base in labels.old:
            faults.add((*at, base), "exists already without a matrix; use another label")


# `requires`: what a task waits for.
#
# An entry is a label, or `{task, on, where}`. The label of a matrix means all its combinations, or those that `where`
# picks; inside a matrix, `where: {os: {$matrix: os}}` pairs equal with equal.


@dataclass(frozen=True, slots=True, eq=False)
class Want:
    """An entry of `requires` as it was written, its label not yet looked up."""

    task: str
    on: On = On.SUCCESS
    where: Mapping[str, object] | None = None


#: The entries of one `requires`: plain labels, wants, and None where an entry is faulty.
Wants = Sequence[str | Want | None]

_WHERE = f"an object of 1 to {AXES_MAX} axes, each with a value or a $matrix object"


def _read_where(value: object, at: Path, faults: Faults) -> dict[str, object] | None:
    """Check the form of `where`; whether its axes and values exist depends on the label."""
    if not isinstance(value, dict) or not 1 <= len(value) <= AXES_MAX:
        faults.wrong(at, _WHERE, value)
        return None
    for axis, entry in value.items():
        if not is_mark(entry):
            read_scalar(entry, (*at, axis), faults)
    return value


EDGE = Level(
    "a requires entry",
    Field("task", text(NAME_MAX), REQUIRED, "The label of the prerequisite."),
    Field("on", choice(On), "success", "Which end of the prerequisite meets the edge."),
    Field("where", Reader(_WHERE, _read_where), None, "Which combinations of a matrix."),
)
_WANT = record(EDGE, Want)
_TAKES = "a list of labels, or of objects with the fields of a requires entry"


def _read(value: object, at: Path, faults: Faults) -> list[object] | None:
    if isinstance(value, str):
        faults.add(at, f"must be a list; write [{value}]")
        return None
    if not isinstance(value, list):
        faults.wrong(at, _TAKES, value)
        return None
    return [
        item if isinstance(item, str) else _WANT.read(item, (*at, index), faults) for index, item in enumerate(value)
    ]


#: The reader of `requires`.
REQUIRES = Reader(_TAKES, _read)


class _Known(dict[str, Edge]):
    """The edge to each label that is met by its success; tasks share them."""

    def __missing__(self, label: str) -> Edge:
        edge = self[label] = Edge(label)
        return edge


@dataclass(frozen=True, slots=True)
class Resolver:
    """Resolves the entries of `requires` in one graph, within the allowance."""

    labels: Labels
    faults: Faults
    left: Allowance
    known: _Known = field(default_factory=_Known)

    def edges(self, wants: Wants, own: str, choice: Choice, at: Path) -> tuple[Edge, ...]:
        """Turn the entries of `requires` into the edges of the task `own`; `choice` are its values in a matrix."""
        if self.left.edges < 0:
            return ()
        # Nearly always they are plain labels of other tasks, each once; this takes a quarter of the general way's time.
        distinct = set(wants)
        if len(distinct) == len(wants) and own not in distinct and self.labels.plain.keys() >= distinct:
            self.left.edges -= len(wants)
            return tuple([self.known[label] for label in wants])  # type: ignore[index]
        return self._edges(wants, own, choice, at)

    def _edges(self, wants: Wants, own: str, choice: Choice, at: Path) -> tuple[Edge, ...]:
        edges: dict[tuple[str, On], Edge] = {}
        for index, want in enumerate(wants):
            if self.left.edges < 0:
                break
            if isinstance(want, str):
                self._add(edges, self._meant(want, (*at, index)), On.SUCCESS, own, (*at, index))
            elif want is not None:
                self._add(edges, self._picked(want, choice, (*at, index)), want.on, own, (*at, index))
        return tuple(edges.values())

    def _add(self, edges: dict[tuple[str, On], Edge], labels: Collection[str], on: On, own: str, at: Path) -> None:
        self.left.edges -= max(1, len(labels))
        for label in labels:
            if label == own:
                self.faults.add(at, f"{quoted(own)} requires itself; remove it")
            elif (label, on) in edges:
                self.faults.add(at, f"repeats {quoted(label)} on {on}; require it once")
            else:
                edges[label, on] = Edge(label, on)

    def _meant(self, label: str, at: Path) -> Collection[str]:
        """Return the tasks that a label means."""
        if self.labels.are_task(label):
            return (label,)
        if label in self.labels.matrices:
            return self.labels.matrices[label].combinations
        self.labels.unknown(label, at, self.faults)
        return ()

    def _picked(self, want: Want, choice: Choice, at: Path) -> Collection[str]:
        """Return the tasks that a want means; when its `where` picks none, say why."""
        matrix = self.labels.matrices.get(want.task)
        if want.where is None or matrix is None:
            if want.where is not None and self.labels.are_task(want.task):
                self.faults.add((*at, "where"), f"{quoted(want.task)} has no matrix; leave where out")
            return self._meant(want.task, at)
        where = {axis: fill(entry, choice) for axis, entry in want.where.items()}
        picked = matrix.select(where)
        if not picked and matrix.combinations:
            self._say_why(where, matrix, want, choice, (*at, "where"))
        return picked

    def _say_why(self, where: Mapping[str, object], matrix: Matrix, want: Want, choice: Choice, at: Path) -> None:
        before = self.faults.noted
        refuse_unfilled(find(where, at), choice, self.faults)
        if self.faults.noted == before:
            read_where(where, matrix.axes, at, self.faults)
        if self.faults.noted == before:
            self.faults.add(at, f"picks no combination of {quoted(want.task)}; all that agree are excluded")


# `{"$subs": "taskId:<label>"}` in a payload stands for the id of the task with that label.
#
# It may stand at any depth of a payload, for a label that comes later, for the task's own, or, in an extension, for
# one that exists. What is inside `graph` is left alone: those labels are the inner graph's, and it fills them itself.


_PREFIX = "taskId:"


def substitute(payload: Payload, ids: Mapping[str, str]) -> Payload:
    """Return the payload of a valid task with each `$subs` replaced by its task's id; `ids` is label -> id."""

    def stand_in(mark: dict[str, object]) -> object:
        label = label_of(mark[SUBS])
        assert label is not None, "a malformed $subs passed validation"
        return ids[label]

    filled = {key: item if key == Kind.GRAPH else replace(item, SUBS, stand_in) for key, item in payload.items()}
    return filled if any(filled[key] is not payload[key] for key in payload) else payload


def renamed(payload: Payload, names: Mapping[str, str]) -> Payload:
    """Return a payload whose `$subs` were replaced before, with other ids in the place of those; `names` is old -> new.

    Only a text that is exactly an id is replaced.
    """
    return {key: item if key == Kind.GRAPH else _exchange(item, names) for key, item in payload.items()}


def refuse_subs(marks: Iterable[Mark], labels: Labels, faults: Faults) -> None:
    """Note each `$subs` that cannot be replaced."""
    for place, name in marks:
        if place[-1] != SUBS:
            continue
        label = label_of(name)
        if label is None:
            faults.wrong(place, 'a text "taskId:<label>"', name)
        elif label in labels.matrices:
            faults.add(place, f"{quoted(label)} has a matrix; name one combination{_such_as(labels.matrices[label])}")
        elif not labels.are_task(label):
            labels.unknown(label, place, faults)


def label_of(name: object) -> str | None:
    """Read the label that a `$subs` names; None when it is malformed. A label may hold colons itself."""
    if isinstance(name, str) and name.startswith(_PREFIX) and len(name) > len(_PREFIX):
        return name.removeprefix(_PREFIX)
    return None


def _such_as(matrix: Matrix) -> str:
    return f", such as {quoted(next(iter(matrix.combinations)))}" if matrix.combinations else ""


def _exchange(item: object, names: Mapping[str, str]) -> object:
    if isinstance(item, str):
        return names.get(item, item)
    if isinstance(item, list | tuple):
        return [_exchange(one, names) for one in item]
    if isinstance(item, Mapping):
        return {key: _exchange(one, names) for key, one in item.items()}
    return item
