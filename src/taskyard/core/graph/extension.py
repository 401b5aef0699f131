"""Adding tasks to a graph that exists.

A new task may require old ones; nothing makes an old one require a new one, so an extension cannot close a cycle
through them. A label that exists with the same definition is an echo, with another one a fault.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from taskyard.core.graph.document import Edge, Mutex, Reruns, Slice, Task, When
from taskyard.core.values import defaults


@dataclass(frozen=True, slots=True)
class Existing:
    """The graph that is extended: the digest of each task's definition by label, and the graph's routing.

    A graph without tasks is finished and takes no extension, so no definitions mean a new graph.
    """

    definitions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    routing: str = ""


NOTHING = Existing()


def digest(task: Task) -> str:
    """Give the SHA-256 of a task's definition in canonical JSON: the order of keys, edges and mutexes is no part of it.

    Nor is the label, or a field at its default, so a field that is added later changes no digest of before.
    """
    definition = _chosen(task)
    for name in ("requires", "mutexes"):
        if name in definition:
            definition[name] = sorted(map(_canonical, getattr(task, name)))
    return hashlib.sha256(_canonical(definition).encode()).hexdigest()


_Part = Task | Slice | Edge | Reruns | Mutex | When


def _chosen(part: _Part) -> dict[str, object]:
    """Give the fields of a task, or of a part of one, that say something."""
    values = ((name, getattr(part, name), default) for name, default in _DEFAULTS[type(part)])
    return {name: value for name, value, default in values if value != default}


def _plain(value: object) -> object:
    assert isinstance(value, _Part), f"{type(value).__name__} is no part of a task"
    return _chosen(value)


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_plain).encode
#: The fields of each part with their defaults; a field without one is always written. What a task is called, by itself
#: or in its document, is no definition.
_DEFAULTS = {
    part: tuple((name, default) for name, default in defaults(part) if name not in ("label", "node"))
    for part in (Task, Slice, Edge, Reruns, Mutex, When)
}
