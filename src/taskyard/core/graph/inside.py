"""The graphs inside tasks, seen from outside: every task that runs because another does, however deep."""

from collections.abc import Iterator

from taskyard.core.graph.document import Task
from taskyard.core.graph.validate import validate
from taskyard.core.words import Kind


def with_all_inside(task: Task) -> Iterator[Task]:
    """Yield a task and those of the graphs inside it. Of a graph that no longer passes there are none."""
    yield task
    for one in task.slices:
        if one.kind is Kind.GRAPH and (found := validate(one.payload[Kind.GRAPH]).graph) is not None:
            for inner in found.tasks.values():
                yield from with_all_inside(inner)
