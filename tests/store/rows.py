"""Rows to fill a store with, for tests that care about only a few columns."""

import sqlite3

import psycopg

from taskyard.core.states import Millis, State
from taskyard.core.structs import struct_replace
from taskyard.store.connection import Repo
from taskyard.store.queries import SQLITE, Row, statements
from taskyard.store.rows import TaskRecord

NOW = Millis(1_767_225_600_000)
LATER = Millis(NOW + 1)
#: Keys have 63 bits.
LARGEST = 2**63 - 1
#: The error of a database for an impossible value.
REFUSED = (sqlite3.IntegrityError, psycopg.IntegrityError)
READY = (State.PENDING, State.WAITING)
#: A new task.
TASK: dict[str, object] = {
    "graph_id": 1, "state": "unscheduled", "reason": "prerequisite", "moved_ms": NOW, "not_before_ms": None,
    "rules": "", "kind": "command", "priority": 100, "created_ms": NOW, "weight": 1, "join_rule": "all",
    "on_impossible": "hold", "is_handler": 0, "is_constrained": 0, "awaited": 0, "met": 0, "broken": 0, "impossible": 0,
    "queue_id": 0, "due_ms": None, "loading": 0, "caches": None,
}  # fmt: skip


def task_row(id: int, **columns: object) -> Row:
    """A new task."""
    values = TASK | columns | {"id": id}
    assert values.keys() == {name for name, _ in statements(SQLITE)["insert_tasks"].parameters}
    return tuple(values[name] for name, _ in statements(SQLITE)["insert_tasks"].parameters)


def add_graph(repo: Repo, id: int = 1) -> None:
    """A graph with no tasks yet."""
    assert repo.graphs.add(id, "running", NOW, "me")


def add_tasks(repo: Repo, *ids: int, **columns: object) -> None:
    """Tasks of graph 1."""
    repo.tasks.add([task_row(id, **columns) for id in ids])


def move(repo: Repo, id: int, *targets: State, bot: str | None = None) -> TaskRecord:
    """Move a task along arrows; at the end the bot has it."""
    task = repo.tasks.get([id])[id]
    for target in targets:
        source = task.state
        task.life, task.bot = struct_replace(task.life, state=target), bot if target is targets[-1] else None
        repo.tasks.write_moved([(task, source)])
    return task
