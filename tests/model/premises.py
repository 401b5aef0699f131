"""The yard of these tests: one thread, a clock that is told, everything that a server does, and a server that dies.

Each call is one transaction or one call of `schedule()`, so that the same steps always lead to the same rows.
"""

from collections.abc import Sequence
from typing import NamedTuple

from taskyard.core import ids
from taskyard.core.graph.model import Existing, digest
from taskyard.core.graph.parse import validate
from taskyard.core.matching import canonical
from taskyard.core.states import GraphState
from taskyard.lifecycle import bot_sessions, submit
from taskyard.lifecycle.admission import pools
from taskyard.lifecycle.admission.scheduler import Admission, Bounds
from taskyard.lifecycle.commands import Begun, Hello, Refusal
from taskyard.lifecycle.definitions import decoded
from taskyard.lifecycle.doctor import check
from taskyard.lifecycle.queues import Registry
from taskyard.lifecycle.rows import DROP, LOAD, NewTasks
from taskyard.lifecycle.submit import Extension, GraphChanged, Submitted
from taskyard.store.connection import open_store
from taskyard.store.repo.tasks import InEdge
from taskyard.store.rows import Continuation, GraphRecord, TaskRecord
from tests.lifecycle.grounds import ALL, Grounds
from tests.model.asked import CAPACITY, POOL
from tests.store.check_cache import check_row_cache

#: Beyond every key.
LAST = (1 << 63) - 1


class Seen(NamedTuple):
    """Everything that is compared, at one moment."""

    graphs: dict[int, GraphRecord]  # those that are whole
    tasks: dict[int, TaskRecord]
    edges: list[InEdge]
    notes: list[Continuation]


class Premises(Grounds):
    """A yard with all that a server does."""

    def __init__(self, url: str, bounds: Bounds) -> None:
        super().__init__(url)
        self._bounds = bounds
        self.admission = self._server()
        self.do(lambda transaction: pools.set_pool(transaction, POOL, CAPACITY, False, "ann"))

    def restart(self) -> None:
        """Let the server die and another one come."""
        self.store.close()
        self.store = open_store(self.store.url)
        self.forget()

    def forget(self) -> None:
        """Have another server take over: what was only remembered is gone."""
        self.registry = Registry()
        self.admission = self._server()

    def schedule(self) -> None:
        """Let in whoever may go."""
        while True:
            passed = self.admission.schedule()
            assert passed.ran, "nobody else is at a pass"
            if not passed.more:
                return

    def arrive(self, bot: str, session: str, bot_pools: Sequence[str], begun: tuple[Begun, ...] | None = None) -> None:
        """Let a bot say hello."""
        asked = canonical({"id": bot, "pool": sorted(bot_pools)})
        self.do(lambda transaction: bot_sessions.hello(transaction, [Hello(bot, session, asked, 4, begun=begun)]))

    def extension(self, graph: int, document: object) -> Extension | None:
        """Check tasks against the graph that they are added to; None if it has all of them."""
        with self.store.read() as repo:
            rows, record = repo.tasks.definitions_of(graph), repo.graphs.peek([graph])[0]
        digests = {label: kept or digest(decoded(text)) for _, label, text, kept in rows}
        validation = validate(document, existing=Existing(digests), now=self.now)
        assert validation.graph is not None, validation.faults
        tasks = list(validation.graph.tasks.values())
        self.later(1)
        keys = ids.mint(self.now, len(tasks), next(self._chance) % 60_000)
        new = {task.label: int(key) for task, key in zip(tasks, keys, strict=True)}
        new_tasks = NewTasks(graph, tasks, {label: id for id, label, _, _ in rows} | new, self.now, substitutes=False)
        return Extension(new_tasks, record.extensions, f"loader {self.now}", "ann") if tasks else None

    def extend(self, one: Extension) -> Submitted | GraphChanged | Refusal:
        """Add tasks to a graph."""
        return self.do(lambda transaction: submit.extend(transaction, [one]))[0]

    def keep_some(self, pages: int) -> int:
        """Take up so many pages, the last note first; say how many that were."""
        for kept in range(pages):
            notes = [note for note in self.notes() if note.kind != LOAD]
            if not notes:
                return kept
            self.take_up(notes[-1])
        return pages

    def run_continuations(self) -> int:
        """Take up notes until there are none but those of whoever is still loading."""
        return self.keep_some(ALL)

    def loading(self) -> set[int]:
        """Name the graphs of which a part is being loaded or dropped."""
        return {note.graph for note in self.notes() if note.kind in {LOAD, DROP}}

    def look(self) -> Seen:
        """Look at everything at once."""
        with self.store.read() as repo:
            graphs = {one.id: one for one in repo.doctor.graphs(-1, ALL) if one.loader is None}
            ids = [one.id for one in repo.doctor.tasks(-1, -1, LAST, ALL) if one.graph_id in graphs]
            tasks = {one.id: one for one in repo.tasks.read(ids)}
            return Seen(graphs, tasks, repo.edges.into(list(tasks)), repo.continuations.after(-1, ALL))

    def consult(self) -> None:
        """Have every number counted afresh."""
        with self.store.read() as repo:
            assert [str(one) for one in check.doctor(repo, self.now)] == []
        check_row_cache(self.store)

    def open_graphs(self) -> list[int]:
        """Name the graphs that people can still change."""
        over = {GraphState.FINISHED, GraphState.CANCELING, GraphState.CANCELED}
        return [one.id for one in self.look().graphs.values() if one.state not in over]

    def _server(self) -> Admission:
        return Admission(self.do, self.store.read, lambda: self.now, "me", self._bounds)
