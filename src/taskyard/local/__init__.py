"""A graph of tasks in one process: `Dag` and `Scheduler`, the whole of py3-sched, atomic.

It is the machine of `taskyard.core` with admission and matching always open. It runs nothing, stores nothing and
knows no clock: the caller fetches a task, does it, and delivers or fails it.
"""

from taskyard.local.dag import Dag, DagError
from taskyard.local.scheduler import Scheduler, SchedulerError

__all__ = ["Dag", "DagError", "Scheduler", "SchedulerError"]
