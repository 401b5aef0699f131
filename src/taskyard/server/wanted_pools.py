"""In which pools the tasks of a document may run, as far as one can tell before it is checked.

It errs on the side of more: a task that names no pool may run in any, and one that only a matrix tells counts as every
pool, too. A document that is no good may name
anything here; it is refused later, for what is wrong with it.
"""

from collections.abc import Iterator
from typing import Any, Final

from taskyard.core.graph.limits import NESTING_MAX
from taskyard.core.matching import POOL
from taskyard.core.words import Kind
from taskyard.server.scopes import ALL

_UNNAMED: Final = ""


def pools_named(document: object, unnamed: str = ALL) -> frozenset[str]:
    """Name every pool in which a task of a document may run; `unnamed` stands for those of a task that names none."""
    return frozenset(pool or unnamed for pool in _of_graph(document, 0))


def _of_graph(document: object, nesting: int) -> Iterator[str]:
    """Name the pools of a graph and of those inside it; what is nested deeper than may be is refused later."""
    for node in _part(document, "tasks").values():
        task = _value(node, "task")
        yield from _of_task(task)
        slices = _value(task, "slices")
        for holder in (task, *(slices if isinstance(slices, list) else ())) if nesting <= NESTING_MAX else ():
            yield from _of_graph(_value(_value(holder, "payload"), Kind.GRAPH), nesting + 1)


def _of_task(task: object) -> Iterator[str]:
    slices = _value(task, "slices")
    if isinstance(slices, list) and slices:
        for one in slices:
            yield from _of_dimensions(_value(one, "dimensions"))
        if _value(task, "dimensions") is None:
            return
    elif isinstance(slices, dict):
        yield ALL
    yield from _of_dimensions(_value(task, "dimensions"))


def _of_dimensions(dimensions: object) -> Iterator[str]:
    pool = _value(dimensions, POOL)
    if pool is None:
        yield ALL if _is_marked(dimensions) else _UNNAMED
    for one in pool if isinstance(pool, list) else [pool]:
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            yield ALL


def _is_marked(value: object) -> bool:
    return isinstance(value, dict) and any(key.startswith("$") for key in value)


def _value(whole: object, name: str) -> Any:
    return whole.get(name) if isinstance(whole, dict) else None


def _part(whole: object, name: str) -> dict[str, Any]:
    found = _value(whole, name)
    return found if isinstance(found, dict) else {}
