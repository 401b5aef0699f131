"""How many tasks a request asks for, counted before any matrix is expanded: large requests take seconds each."""

from math import prod

from taskyard.core.graph.matrix import EXCLUDE
from taskyard.server.problems import Refused, invalid
from taskyard.wire.api import Fault


def check_size(document: object, tasks_max: int) -> None:
    """Refuse a document that asks for more tasks than one request may; what is excluded counts, too."""
    asked = tasks_asked(document)
    if asked > tasks_max:
        text = f"asks for {asked} tasks; {tasks_max} is the most in one request: extend the graph, or split it"
        raise _too_many(text)


def tasks_asked(document: object) -> int:
    """Count the tasks of a graph document with those of the graphs inside; what is no task counts as one."""
    tasks = document.get("tasks") if isinstance(document, dict) else None
    return sum(map(_asked, tasks.values())) if isinstance(tasks, dict) else 0


def _asked(node: object) -> int:
    if not isinstance(node, dict):
        return 1
    matrix, task = node.get("matrix"), node.get("task")
    payload = task.get("payload") if isinstance(task, dict) else None
    inner = tasks_asked(payload.get("graph")) if isinstance(payload, dict) else 0
    axes = matrix.items() if isinstance(matrix, dict) else ()
    times = prod(len(axis) for name, axis in axes if name != EXCLUDE and isinstance(axis, list))
    return max(1, times) * (1 + inner)


def _too_many(text: str) -> Refused:
    return invalid(f"tasks: {text}", [Fault(text, "tasks")])
