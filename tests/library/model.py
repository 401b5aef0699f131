"""A model of the scheduler: every answer is computed from the states of all tasks."""

from collections.abc import Iterable, Mapping

from taskyard.local.dag import Node

UNTOUCHED, FETCHED, DELIVERED, FAILED = "untouched", "fetched", "delivered", "failed"


class Refused(Exception):
    """The call is illegal."""


class Model:
    """The state of each task, and what follows from that."""

    def __init__(self, prerequisites: Mapping[Node, set[Node]]) -> None:
        self.prerequisites = prerequisites
        self.reset()

    def reset(self) -> None:
        self.status = dict.fromkeys(self.prerequisites, UNTOUCHED)

    @property
    def available(self) -> set[Node]:
        return {task for task in self.status if self.status[task] in (UNTOUCHED, FETCHED) and self.ready(task)}

    @property
    def blocked(self) -> dict[Node, set[Node]]:
        failed = {task for task in self.status if self.status[task] == FAILED}
        return {task: needed & failed for task, needed in self.prerequisites.items() if needed & failed}

    @property
    def unknown(self) -> set[Node]:
        return {task for task in self.status if self.status[task] == UNTOUCHED} - self.blocked.keys()

    @property
    def stranded(self) -> set[Node]:
        stranded = set(self.blocked)
        while more := {task for task, needed in self.prerequisites.items() if needed & stranded} - stranded:
            stranded |= more
        return stranded

    def ready(self, task: Node) -> bool:
        return all(self.status[needed] == DELIVERED for needed in self.prerequisites[task])

    def fetch(self, task: Node, *, fetched_ok: bool, failed_ok: bool) -> None:
        self.become(task, FETCHED, [UNTOUCHED] + [FETCHED] * fetched_ok + [FAILED] * failed_ok)

    def deliver(self, task: Node, *, nofetch_ok: bool, delivered_ok: bool) -> None:
        self.become(task, DELIVERED, [FETCHED] + [UNTOUCHED] * nofetch_ok + [DELIVERED] * delivered_ok)

    def fail(self, task: Node, *, nofetch_ok: bool, is_exception: bool) -> None:  # noqa: ARG002
        self.become(task, FAILED, [FETCHED] + [UNTOUCHED] * nofetch_ok)

    def become(self, task: Node, status: str, allowed: Iterable[str]) -> None:
        if self.status[task] not in allowed or not self.ready(task):
            raise Refused
        self.status[task] = status
