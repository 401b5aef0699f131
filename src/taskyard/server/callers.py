"""Who asks, and what they may do with a graph."""

from dataclasses import dataclass
from typing import Final

from taskyard.core.ids import Key, text_of
from taskyard.server.scopes import EVERYTHING, READ, SUBMIT, Rights, scope
from taskyard.server.seals import RunToken

#: What a running task may do with its own graph: look at it, and add to it.
RUN_RIGHTS: Final = frozenset({READ, SUBMIT})


@dataclass(frozen=True, slots=True)
class OwnRun:
    """The attempt that a running task speaks for, and the graph that it is part of."""

    token: RunToken
    graph: int
    pools: frozenset[str]  # where what it submits may run
    submitter: str = ""  # of the task


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who asks for something."""

    actor: str  # as the audit names them
    kind: str
    rights: Rights
    id: str = ""  # of the token
    pool: str | None = None
    run: OwnRun | None = None

    @property
    def submitter(self) -> str:
        """Whose tasks it is that this caller submits: those of a running task belong to the submitter of that task."""
        return self.run.submitter if self.run is not None else self.id or self.actor

    def lacks(self, right: str, graph: int, pools: frozenset[str]) -> str | None:
        """Name what is missing for a right in a graph, or in a task of it: one of its pools is enough."""
        if self.run is not None:
            mine = graph == self.run.graph and right in RUN_RIGHTS
            return None if mine else f"{right} in this graph: a task's own token is for its own graph"
        enough = self.rights.in_one_of(right, pools)
        return None if enough else " or ".join(scope(pool, right) for pool in sorted(pools))

    def lacks_pools(self, right: str, pools: frozenset[str]) -> list[str]:
        """Name the scopes that are missing to have a right in all of some pools."""
        if self.run is None:
            return self.rights.lacks(right, pools)
        return [] if right == SUBMIT and pools <= self.run.pools else [scope(pool, right) for pool in sorted(pools)]


ANYONE: Final = Caller("anyone", "user", EVERYTHING)


def run_actor(run: RunToken) -> str:
    """Say how the audit names a running task."""
    return f"task {text_of(Key(run.task))}-{run.attempt}"
