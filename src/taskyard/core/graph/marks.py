"""Marks: objects that stand for something else, `{"$subs": "taskId:build"}` and `{"$matrix": "os"}`.

An object is a mark only when that is its sole key; beside other keys it is left alone. What a mark means is known
elsewhere. Values have been surveyed, so their depth is bounded and recursion is safe.
"""

from collections.abc import Callable, Collection, Iterator
from typing import TypeGuard

from taskyard.core.graph.faults import Path

SUBS, MATRIX = "$subs", "$matrix"
#: The place of what a mark names, which ends in the mark's word; and the name itself.
Mark = tuple[Path, object]


def is_mark(value: object) -> TypeGuard[dict[str, object]]:
    """Tell whether a value stands for something else."""
    return isinstance(value, dict) and len(value) == 1 and (SUBS in value or MATRIX in value)


def find(value: object, at: Path, leave: Collection[Path] = ()) -> Iterator[Mark]:
    """Yield every mark in `value`, but for what is inside the places to leave."""
    if not isinstance(value, dict | list) or at in leave:
        return
    if is_mark(value):
        yield from (((*at, word), name) for word, name in value.items())
        return
    for step, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield from find(item, (*at, step), leave)


def replace(value: object, word: str, stand_in: Callable[[dict[str, object]], object]) -> object:
    """Give `value` with each mark of `word` replaced; what holds none is shared, not copied."""
    if isinstance(value, dict):
        if len(value) == 1 and word in value:
            return stand_in(value)
        filled = {key: replace(item, word, stand_in) for key, item in value.items()}
        return filled if any(filled[key] is not value[key] for key in value) else value
    if isinstance(value, list):
        entries = [replace(item, word, stand_in) for item in value]
        return entries if any(new is not old for new, old in zip(entries, value, strict=True)) else value
    return value


def size(value: object) -> int:
    """Count the values inside a value, itself included."""
    if isinstance(value, dict):
        return 1 + sum(map(size, value.values()))
    return 1 + sum(map(size, value)) if isinstance(value, list) else 1
