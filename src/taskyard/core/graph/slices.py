"""The slices of a task: one for its `dimensions`, or one for each entry of its `slices`.

A slice's own payload is laid over the task's, field by field; a field is replaced whole, never merged. A slice that a
bot runs and that names no pool is in the default one, whatever else it asks for.
"""

from collections.abc import Iterator
from typing import TypedDict

from taskyard.core.graph.document import Payload, Slice
from taskyard.core.graph.faults import Faults, Path
from taskyard.core.graph.limits import EXPIRES_MS
from taskyard.core.graph.payload import BROKEN, SERVER_KINDS, kind_of
from taskyard.core.matching import Dimensions, with_pool


class SliceFields(TypedDict, total=False):
    """What the tables have read of a slice."""

    dimensions: Dimensions
    expires: int
    wait_for_capacity: bool
    payload: Payload


class TaskFields(SliceFields, total=False):
    """What the tables have read of a task, as far as it is about slices: its only one, or several."""

    slices: tuple[SliceFields, ...]


def take_slices(task: TaskFields, at: Path, faults: Faults) -> tuple[Slice, ...]:
    """Take what describes slices out of the fields of a task, and make the slices of it; none when it is faulty."""
    if "slices" not in task:
        payload = task.pop("payload", _EMPTY)
        only = _slice(task, payload, True, (*at, "payload"), faults)
        return () if only is None else (only,)
    for name in ("dimensions", "expires", "wait_for_capacity"):
        if task.pop(name, None) is not None:  # type: ignore[misc]
            faults.add((*at, name), "belongs to a slice; move it into the slices")
    slices = tuple(_overlaid(task.pop("slices"), task.pop("payload", _EMPTY), (*at, "slices"), faults))
    if len(slices) > 1 and any(each.kind in SERVER_KINDS for each in slices):
        faults.add((*at, "slices"), "has work that the server does itself, which needs no bot; keep one slice")
    return slices


_EMPTY: Payload = {}


def _overlaid(entries: tuple[SliceFields, ...], shared: Payload, at: Path, faults: Faults) -> Iterator[Slice]:
    for index, entry in enumerate(entries):
        payload = _laid_over(shared, entry.get("payload", _EMPTY))
        made = _slice(entry, payload, index + 1 == len(entries), (*at, index, "payload"), faults)
        if made is not None:
            yield made


def _laid_over(shared: Payload, own: Payload) -> Payload:
    if own is BROKEN or shared is BROKEN:
        return BROKEN
    return {**shared, **own} if own else shared


def _slice(fields: SliceFields, payload: Payload, last: bool, at: Path, faults: Faults) -> Slice | None:
    """Make one slice, and take its fields out of `fields`."""
    dimensions = fields.pop("dimensions", ())
    expires_ms = fields.pop("expires", EXPIRES_MS)
    wait_for_capacity = fields.pop("wait_for_capacity", last)
    kind = None if payload is BROKEN else kind_of(payload, at, faults)
    if kind is None:
        return None
    asked = dimensions if kind in SERVER_KINDS else with_pool(dimensions)
    return Slice(asked, payload, kind, expires_ms, wait_for_capacity)
