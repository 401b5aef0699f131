"""What the labels of one graph mean: a task, all combinations of a matrix, or a task that exists already."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from taskyard.core.graph.allowance import Allowance
from taskyard.core.graph.faults import Faults, Path, quoted
from taskyard.core.graph.matrix import NO_MATRIX, Matrix, read_matrix
from taskyard.core.graph.readers import name_fault


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels that a graph document can speak of."""

    nodes: Mapping[str, object]  # the document's own
    plain: Mapping[str, object]  # those of them that are one task
    matrices: Mapping[str, Matrix]  # those of them that stand for combinations
    made: Mapping[str, str]  # a combination's label -> its node's
    old: Mapping[str, str]  # those of the graph that is extended

    def are_task(self, label: str) -> bool:
        """Tell whether a label is exactly one task's."""
        return label in self.plain or label in self.made or (label in self.old and label not in self.matrices)

    def node_of(self, label: str) -> str:
        """Name the node that a task comes from."""
        return self.made.get(label, label)

    def count(self) -> int:
        """Count the tasks of the graph once this document is added."""
        return len(self.old) + sum(1 for label in chain(self.plain, self.made) if label not in self.old)

    def unknown(self, label: str, at: Path, faults: Faults) -> None:
        """Note a label that means nothing."""
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
    """Check every label and take the matrices apart, no further than the allowance; `taken` are axes around this."""
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
