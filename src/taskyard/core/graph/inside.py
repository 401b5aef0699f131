"""The graphs inside tasks, seen from outside: every task that runs because another does, however deep."""

from collections.abc import Iterable, Iterator

from taskyard.core.graph.document import Task
from taskyard.core.graph.validate import validate
from taskyard.core.matching import pool_of
from taskyard.core.words import Kind


def with_all_inside(task: Task) -> Iterator[Task]:
    """Yield a task and those of the graphs inside it. Of a graph that no longer passes there are none."""
    yield task
    for one in task.slices:
        if one.kind is Kind.GRAPH and (found := validate(one.payload[Kind.GRAPH]).graph) is not None:
            for inner in found.tasks.values():
                yield from with_all_inside(inner)


def pools_named(tasks: Iterable[Task]) -> frozenset[str]:
    """Name every pool that tasks name, or those of the graphs inside them.

    Every task that a bot runs names one. What the server runs and that names none belongs to the pools of its graph.
    """
    asked = {one.dimensions for task in tasks for each in with_all_inside(task) for one in each.slices}
    return frozenset(map(pool_of, asked)) - {""}
