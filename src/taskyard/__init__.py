"""Taskyard runs graphs of tasks on a fleet of machines, never loses one, and can say why a task is not running."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taskyard.local import Dag, DagError, Scheduler, SchedulerError
    from taskyard.sdk import Client

__all__ = ["Client", "Dag", "DagError", "Scheduler", "SchedulerError"]


def __getattr__(name: str) -> object:
    """Bring a public name when it is first asked for, so that `import taskyard` itself costs nothing."""
    if name in __all__:
        return getattr(import_module("taskyard.sdk" if name == "Client" else "taskyard.local"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
