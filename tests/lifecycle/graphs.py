"""Builders of graph documents."""

from collections.abc import Mapping, Sequence
from typing import Any

#: More dependents than fit into two pages.
MANY = 2_500


def node(
    *requires: str, failure: Sequence[str] = (), always: Sequence[str] = (), **fields: object
) -> dict[str, object]:
    """A node of a graph; keywords become fields of the node or of its task."""
    edges: list[object] = [*requires]
    edges += [{"task": label, "on": "failure"} for label in failure]
    edges += [{"task": label, "on": "always"} for label in always]
    own = {name: fields.pop(name) for name in ("join", "on_impossible", "reruns") if name in fields}
    return {"requires": edges, "task": {"payload": {"command": ["true"]}} | fields} | own


def graph(**nodes: dict[str, object]) -> dict[str, object]:
    """A graph of nodes."""
    return {"tasks": nodes}


def star(count: int = MANY, **fields: Any) -> dict[str, object]:
    """A task with many dependents."""
    return {"tasks": {"hub": node(), **{f"ray{place}": node("hub", **fields) for place in range(count)}}}


def rays(labels: Mapping[str, int]) -> dict[str, int]:
    """The dependents of a star."""
    return {label: id for label, id in labels.items() if label != "hub"}


def noop(*requires: str, **fields: Any) -> dict[str, object]:
    """A node that does nothing."""
    return node(*requires, payload={"noop": True}, **fields)


def chain(*labels: str, **task: object) -> dict[str, object]:
    """A graph whose tasks run one after the other."""
    tasks: dict[str, object] = {}
    for place, label in enumerate(labels):
        requires = [labels[place - 1]] if place else []
        tasks[label] = {"requires": requires, "task": {"payload": {"command": ["true"]}} | task}
    return {"tasks": tasks}
