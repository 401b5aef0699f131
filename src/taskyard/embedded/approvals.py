"""What a run asks the person in front of it: approvals, of its graph and of the graphs inside.

A run has no address that others know, so nobody but whoever started it can answer.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from taskyard.core import ids
from taskyard.core.graph.model import NESTING_MAX
from taskyard.core.states import Kind
from taskyard.engine.engine import Engine
from taskyard.lifecycle.commands import Approve
from taskyard.store.repo.read import FIRST
from taskyard.views.approvals import approvals
from taskyard.wire.progress import Question

#: Answers a question, or says by None that it has no answer yet; it is asked again soon. It is told of None when no
#: question is open.
Decide = Callable[[Question | None], bool | None]
#: How many are looked at: one is answered at a time.
OPEN_MAX: Final = 1


def approvals_without_timeout(document: object, within: str = "", nesting: int = 0) -> Iterator[str]:
    """Name every approval of a document that waits for ever; one in a graph inside is named after its task."""
    tasks = _value(document, "tasks")
    for label, node in tasks.items() if isinstance(tasks, dict) else ():
        task = _value(node, "task")
        slices = _value(task, "slices")
        shared = _value(task, "payload") or {}
        for one in slices if isinstance(slices, list) and slices else [{}]:
            payload = {**shared, **(_value(one, "payload") or {})}
            if Kind.APPROVAL in payload and "timeout" not in payload:
                yield f"{within}{label}"
            if nesting <= NESTING_MAX:
                yield from approvals_without_timeout(payload.get(Kind.GRAPH), f"{within}{label}/", nesting + 1)


class Questions:
    """Has the questions of one run answered, one after the other."""

    def __init__(self, engine: Engine, decide: Decide, actor: str) -> None:
        self._engine = engine
        self._decide = decide
        self._actor = actor

    def answer(self) -> None:
        """Answer the first question that is open, if somebody knows the answer."""
        with self._engine.store.read() as repo:
            found, _ = approvals(repo, None, FIRST, OPEN_MAX)
        if not found:
            self._decide(None)
        for one in found:
            approved = self._decide(Question(one.task, one.label, one.message))
            if approved is not None:
                self._engine.approve(Approve(ids.key_of(one.task), approved, actor=self._actor))


def _value(whole: object, name: str) -> Any:
    return whole.get(name) if isinstance(whole, dict) else None
