"""The shape of a graph: no task may wait for itself, however long the way round.

Nothing recurses, so a cycle through every task of the largest graph is found like any other.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from taskyard.core.graph.document import Edge
from taskyard.core.graph.faults import word
from taskyard.core.graph.limits import FAULTS_MAX

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
    """Tell whether every task comes after all that it requires, as in most documents: then there is no cycle."""
    seen = set[str]()
    for label, edges in requires.items():
        for edge in edges:
            if edge.task not in seen and edge.task in requires:
                return False
        seen.add(label)
    return True


def _edges(requires: Requires) -> tuple[dict[str, int], dict[str, list[str]]]:
    """Count what each task waits for, and list who waits for it; only tasks of this document matter."""
    unmet = dict.fromkeys(requires, 0)
    dependents: dict[str, list[str]] = {label: [] for label in requires}
    for label, edges in requires.items():
        for edge in edges:
            if edge.task in dependents:
                dependents[edge.task].append(label)
                unmet[label] += 1
    return unmet, dependents


def _release(unmet: dict[str, int], dependents: Mapping[str, list[str]], labels: Iterable[str]) -> None:
    """Take `labels` out, and everything that then waits for nothing."""
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
