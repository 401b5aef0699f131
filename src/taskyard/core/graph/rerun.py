"""Which tasks of a graph run again in a rerun from some of them, and which are reused.

The named tasks run again, and so do their dependents. Another task that did not succeed cannot be reused: it runs again
too, with its dependents. A skipped task is neither: its gate is checked again, with the same result unless a
prerequisite runs again.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from taskyard.core.graph.errors import Fault, Faults, quoted
from taskyard.core.graph.model import Task
from taskyard.core.states import State
from taskyard.core.structs import value


@value
class Renewal:
    """The tasks that run again and those that are reused; the gates decide about all others."""

    again: frozenset[str]
    reused: frozenset[str]


def renewal(requires: Mapping[str, Iterable[str]], states: Mapping[str, State], start: Collection[str]) -> Renewal:
    """Plan a rerun from `start`; `requires` has the prerequisites of each label, `states` its final state."""
    undone = [label for label, state in states.items() if state not in _KEPT]
    again = behind(requires, {*start, *undone})
    reused = (label for label, state in states.items() if state is State.SUCCESSFUL and label not in again)
    return Renewal(again, frozenset(reused))


def behind(requires: Mapping[str, Iterable[str]], start: Collection[str]) -> frozenset[str]:
    """Return some tasks and everything that depends on them, directly or not."""
    dependents: dict[str, list[str]] = defaultdict(list)
    for label, prerequisites in requires.items():
        for prerequisite in prerequisites:
            dependents[prerequisite].append(label)
    found, frontier = set(start), list(start)
    while frontier:
        beyond = [label for label in dependents[frontier.pop()] if label not in found]
        found.update(beyond)
        frontier += beyond
    return frozenset(found)


def named(names: Sequence[str], labels: Mapping[str, str]) -> tuple[set[str], tuple[Fault, ...]]:
    """Find the tasks that people name: by label, or by that of a matrix, which means all its combinations.

    `labels` has the node of each label, from `Task.node`. The result has what was found, and the unknown names.
    """
    nodes: dict[str, list[str]] = defaultdict(list)
    for label, node in labels.items():
        nodes[node].append(label)
    faults, found = Faults(), set[str]()
    for place, name in enumerate(names):
        if name in labels:
            found.add(name)
        elif name and name in nodes:
            found.update(nodes[name])
        else:
            meant = faults.meant(name, labels, nodes) or "; no task of the graph has it"
            faults.add(("from", place), f"unknown label {quoted(name)}{meant}")
    return found, faults.listed()


def timeless(task: Task) -> bool:
    """Whether a task has no start and no deadline; a reused task does not run, so it needs neither."""
    return task.deadline is None and task.not_before is None


#: Ended, or not going to run.
_KEPT = frozenset({State.SUCCESSFUL, State.SKIPPED})
