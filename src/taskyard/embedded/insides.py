"""What is told of a graph inside a task that did not finish: who failed in it, and the last that they printed."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from taskyard.core.states import UNSUCCESSFUL
from taskyard.embedded import printed
from taskyard.store.connection import Repo
from taskyard.store.repo.read import FIRST

#: How many failures inside are told: they have to fit below the one around them.
TOLD_MAX: Final = 3


def tail(repo: Repo, task: int, attempt: int) -> str:
    """Tell why an attempt that is a graph failed; nothing of one that is none."""
    inner = repo.graphs.subgraphs([task]).get((task, attempt))
    lines = _unborn(repo, task) if inner is None else _failures(repo, inner)
    return "\n".join(lines)


def _failures(repo: Repo, graph: int) -> Iterator[str]:
    states = sorted(state.text for state in UNSUCCESSFUL)
    ids = [id for state in states for id in repo.read.tasks(graph, FIRST, state, TOLD_MAX)][:TOLD_MAX]
    labels = repo.tasks.definitions(ids)
    for record in repo.tasks.read(ids):
        yield f"{labels[record.id][0]}: {record.state} ({record.reason})"
        inside = tail(repo, record.id, record.life.attempt) or printed.tail(repo, record.id, record.life.attempt)
        yield from (f"  {line}" for line in inside.splitlines())


def _unborn(repo: Repo, task: int) -> Iterator[str]:
    """Say why a graph could not even be begun."""
    text = repo.read.last_results([task]).get(task)
    told: Any = None if text is None else msgspec.json.decode(text)
    if isinstance(told, dict) and "refused" in told:
        yield told["refused"]
        yield from (f"{fault['path']}: {fault['message']}" for fault in told.get("faults", ()))
