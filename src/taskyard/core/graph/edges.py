"""`requires`: what a task waits for.

An entry is a label, or `{task, on, where}`. The label of a matrix means all its combinations, or those that `where`
picks; inside a matrix, `where: {os: {$matrix: os}}` pairs equal with equal.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from taskyard.core.graph.allowance import Allowance
from taskyard.core.graph.document import Edge
from taskyard.core.graph.faults import Faults, Path, quoted
from taskyard.core.graph.fields import REQUIRED, Field, Level, Reader, record
from taskyard.core.graph.labels import Labels
from taskyard.core.graph.limits import AXES_MAX, NAME_MAX
from taskyard.core.graph.marks import find, is_mark
from taskyard.core.graph.matrix import Choice, Matrix, fill, read_scalar, read_where, refuse_unfilled
from taskyard.core.graph.readers import choice, text
from taskyard.core.words import On


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
    """Looks up what the entries of `requires` mean in one graph, no further than the allowance."""

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
        """Name the tasks that a label means."""
        if self.labels.are_task(label):
            return (label,)
        if label in self.labels.matrices:
            return self.labels.matrices[label].combinations
        self.labels.unknown(label, at, self.faults)
        return ()

    def _picked(self, want: Want, choice: Choice, at: Path) -> Collection[str]:
        """Name the tasks that a want means; when its `where` picks none, say why."""
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
