"""Builders of nodes for graph documents."""

from pathlib import Path
from typing import Any


def node(payload: dict[str, Any], *requires: Any, task: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A node with a payload; `task` has other fields of the task, `more` those of the node."""
    return {"requires": list(requires), "task": {"payload": payload, **(task or {})}, **more}


def script(text: str, *requires: Any, **more: Any) -> dict[str, Any]:
    """A task that runs a script."""
    return node({"script": text}, *requires, **more)


def call(function: str, *args: Any, requires: tuple[Any, ...] = (), **more: Any) -> dict[str, Any]:
    """A task that calls one of our functions."""
    return node({"python": f"tests.e2e.task_functions:{function}", "args": list(args)}, *requires, **more)


def gated(gate: Path, before: str = "", after: str = "", **more: Any) -> dict[str, Any]:
    """A task that runs until a file exists."""
    return script(f"{before}\nwhile [ ! -e {gate} ]; do sleep 0.02; done\n{after}", **more)


def only(bot: str) -> dict[str, Any]:
    """The fields of a task that only one bot may run."""
    return {"dimensions": {"id": bot}}
