"""From a document to something that can be stored, or to everything that is wrong with it; and how much a poll may say.

All of this is done by the thread of whoever asks. It reads no store and writes to none.
"""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from graphlib import TopologicalSorter
from typing import Final

import msgspec

from taskyard.core import ids
from taskyard.core.graph.document import Graph, Task
from taskyard.core.graph.extension import NOTHING, Existing
from taskyard.core.graph.faults import Fault
from taskyard.core.graph.marks import SUBS
from taskyard.core.graph.validate import Validation, validate
from taskyard.core.ids import Key
from taskyard.core.words import Millis
from taskyard.engine.keys import Minted
from taskyard.engine.unserved import asks_for_more, unserved
from taskyard.lifecycle.commands import Code, Refusal
from taskyard.lifecycle.gc_pause import stillness
from taskyard.lifecycle.rows import NewTasks, weight_of
from taskyard.lifecycle.submit import PAGE_MAX

#: An id that is not minted yet is as long as any.
_SOME_ID: Final = "0" * ids.KEY_DIGITS
_SUBS: Final = f'"{SUBS}"'.encode()


def body_of(document: object) -> bytes:
    """Write a valid document down, the same for every order of its keys."""
    return msgspec.json.encode(document, order="sorted")


def digest_of(body: bytes) -> str:
    """Tell bodies apart."""
    return hashlib.sha256(body).hexdigest()


def key_of(text: str | None) -> Key | Refusal | None:
    """Read an id that somebody chose."""
    try:
        return None if text is None else ids.key_of(text)
    except ValueError as fault:
        return Refusal(Code.INVALID, "the id is malformed", (Fault("graph_id", str(fault)),))


def read(
    document: object, now: Millis | None, scheduler_id: str, graph: Key | None = None, existing: Existing = NOTHING
) -> Validation:
    """Validate a document."""
    graph_id = _SOME_ID if graph is None else ids.text_of(graph)
    found = validate(document, scheduler_id=scheduler_id, graph_id=graph_id, existing=existing, now=now)
    if found.graph is not None and not any(map(asks_for_more, found.graph.tasks.values())):
        return found
    others = unserved(document, found.graph)
    return Validation(None, (*found.faults, *others), redefines=found.redefines and not others)


def refusal(validation: Validation) -> Refusal:
    """Say that a document is no graph, or that it would change what exists."""
    count = len(validation.faults)
    code = Code.CONFLICT if validation.redefines else Code.INVALID
    return Refusal(code, f"the document has {count} fault{'s' * (count > 1)}", validation.faults)


def brood_of(graph: Graph, body: bytes, minted: Minted, id: Key, known: Mapping[str, int], submitter: str) -> NewTasks:
    """Give the tasks of a graph their ids; `known` has those of the labels that exist already."""
    ids = {**known, **{label: int(key) for label, key in zip(graph.tasks, minted.tasks, strict=True)}}
    tasks = list(graph.tasks.values())
    if len(tasks) > PAGE_MAX or weight_of(tasks) > PAGE_MAX:
        tasks = _in_order(tasks)
    return NewTasks(id, tasks, ids, minted.created_ms, substitutes=_SUBS in body, submitter=submitter)


def definition_of(graph: Graph, scheduler_id: str, digest: str) -> tuple[str, str, str, str, str, str]:
    """Give what is kept of a graph beside its tasks."""
    tags = msgspec.json.encode(graph.tags).decode()
    return (scheduler_id, graph.name, graph.routing, graph.description, tags, digest)


def still_for(document: object) -> AbstractContextManager[None]:
    """Keep the garbage collector still while a large document is stored."""
    tasks = document.get("tasks") if isinstance(document, dict) else None
    return stillness() if isinstance(tasks, dict) and len(tasks) > PAGE_MAX else nullcontext()


def _in_order(tasks: Sequence[Task]) -> list[Task]:
    """Put whoever is required first: what goes into a page may only name what is stored by then."""
    named = {task.label: task for task in tasks}
    before: set[str] = set()
    for task in tasks:
        if any(edge.task in named and edge.task not in before for edge in task.requires):
            break
        before.add(task.label)
    else:
        return list(tasks)  # most people write them down in order
    requires = {task.label: [edge.task for edge in task.requires if edge.task in named] for task in tasks}
    return [named[label] for label in TopologicalSorter(requires).static_order()]
