"""How many tasks a request asks for, counted before any matrix is expanded: large requests take seconds each."""

from math import prod

from taskyard.core.graph.matrix import EXCLUDE
from taskyard.core.graph.payload import payloads
from taskyard.server.problems import invalid
from taskyard.wire.api import Fault


def check_size(document: object, tasks_max: int) -> None:
    """Refuse a document that asks for more tasks than one request may; what is excluded counts, too."""
    if fault := size_fault(document, tasks_max):
        raise invalid(f"{fault.path}: {fault.message}", [fault])


def size_fault(document: object, tasks_max: int) -> Fault | None:
    """Say that a document asks for too many tasks, if it does."""
    asked = tasks_asked(document)
    if asked <= tasks_max:
        return None
    return Fault(
        f"asks for {asked} tasks; {tasks_max} is the most in one request: extend the graph, or split it", "tasks"
    )


def tasks_asked(document: object) -> int:
    """Count the tasks of a graph document with those of the graphs inside; what is no task counts as one."""
    tasks = document.get("tasks") if isinstance(document, dict) else None
    return sum(map(_asked, tasks.values())) if isinstance(tasks, dict) else 0


def _asked(node: object) -> int:
    if not isinstance(node, dict):
        return 1
    matrix, task = node.get("matrix"), node.get("task")
    # A graph inside may stand in the payload of a slice as well; each that is written is read.
    written = payloads(task, ()) if isinstance(task, dict) else ()
    inner = sum(tasks_asked(payload.get("graph")) for _, payload in written)
    axes = matrix.items() if isinstance(matrix, dict) else ()
    times = prod(len(axis) for name, axis in axes if name != EXCLUDE and isinstance(axis, list))
    return max(1, times) * (1 + inner)
