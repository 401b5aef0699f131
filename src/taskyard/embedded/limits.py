"""Named limits of a run: its command line says how much there is of something, for no admin has said it before."""

from collections.abc import Iterator, Mapping
from typing import Final

from taskyard.core.graph import Fault, GraphDefinition, Task
from taskyard.core.graph.errors import path_text

LACKING: Final = "asks for {need}; there are {total} in all: say --limit {name}=TOTAL"


def lacking(graph: GraphDefinition, limits: Mapping[str, int]) -> tuple[Fault, ...]:
    """Name every task that asks for more of something than there is."""
    return tuple(dict.fromkeys(fault for task in graph.tasks.values() for fault in _of(task, limits)))


def _of(task: Task, limits: Mapping[str, int]) -> Iterator[Fault]:
    for name, need in dict(task.limits).items():
        total = limits.get(name, 0)
        if need > total:
            at = path_text(("tasks", task.node or task.label, "task", "limits", name))
            yield Fault(at, LACKING.format(need=need, total=total, name=name))
