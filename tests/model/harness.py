"""Harness of the model tests: one thread, a fake clock, everything that a server does, and restarts of the server.

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
from taskyard.store.repo.admission import PoolRow
from taskyard.store.repo.tasks import InEdge
from taskyard.store.rows import Continuation, GraphRecord, TaskRecord
from tests.lifecycle.harness import ALL, LifecycleHarness
from tests.model.requests import CAPACITY, POOL
from tests.store.check_cache import check_row_cache

#: Beyond every key.
LAST = (1 << 63) - 1


class StoreContent(NamedTuple):
    """The rows that are compared with the model, at one moment."""

    graphs: dict[int, GraphRecord]  # those that are whole
    tasks: dict[int, TaskRecord]
    edges: list[InEdge]
    continuations: list[Continuation]


class ModelHarness(LifecycleHarness):
    """A lifecycle harness with admission, restarts and extensions."""

    def __init__(self, url: str, bounds: Bounds) -> None:
        super().__init__(url)
        self._bounds = bounds
        self.admission = self._server()
        self.do(lambda transaction: pools.set_pool(transaction, PoolRow(POOL, CAPACITY, False), "ann"))

    def restart(self) -> None:
        """Let the server die and start another one."""
        self.store.close()
        self.store = open_store(self.store.url)
        self.forget()

    def forget(self) -> None:
        """Let another server take over, which has none of the memory of the first."""
        self.registry = Registry()
        self.admission = self._server()

    def schedule(self) -> None:
        """Admit tasks until no more can be admitted."""
        while True:
            passed = self.admission.schedule()
            assert passed.ran, "no other server holds the lock"
            if not passed.more:
                return

    def say_hello(
        self, bot: str, session: str, bot_pools: Sequence[str], begun: tuple[Begun, ...] | None = None
    ) -> None:
        """Let a bot say hello."""
        dimensions = canonical({"id": bot, "pool": sorted(bot_pools)})
        self.do(lambda transaction: bot_sessions.hello(transaction, [Hello(bot, session, dimensions, 4, begun=begun)]))

    def extension(self, graph: int, document: object) -> Extension | None:
        """Check tasks against the graph that they are added to; None if it has all of them."""
        with self.store.read() as repo:
            rows, record = repo.tasks.definitions_of(graph), repo.graphs.peek([graph])[0]
        digests = {label: kept or digest(decoded(text)) for _, label, text, kept in rows}
        validation = validate(document, existing=Existing(digests), now=self.now)
        assert validation.graph is not None, validation.faults
        tasks = list(validation.graph.tasks.values())
        self.advance(1)
        keys = ids.mint(self.now, len(tasks), next(self._chance) % 60_000)
        new = {task.label: int(key) for task, key in zip(tasks, keys, strict=True)}
        new_tasks = NewTasks(graph, tasks, {label: id for id, label, _, _ in rows} | new, self.now, substitutes=False)
        return Extension(new_tasks, record.extensions, f"loader {self.now}", "ann") if tasks else None

    def extend(self, one: Extension) -> Submitted | GraphChanged | Refusal:
        """Add tasks to a graph."""
        return self.do(lambda transaction: submit.extend(transaction, [one]))[0]

    def run_some_continuations(self, pages: int) -> int:
        """Run up to `pages` pages of continuations, the newest first; return how many."""
        for run in range(pages):
            open_ones = [one for one in self.continuations() if one.kind != LOAD]
            if not open_ones:
                return run
            self.run_continuation(open_ones[-1])
        return pages

    def run_continuations(self) -> int:
        """Run continuations until only those of unfinished loads are left."""
        return self.run_some_continuations(ALL)

    def loading(self) -> set[int]:
        """The graphs of which a part is being loaded or dropped."""
        return {one.graph for one in self.continuations() if one.kind in {LOAD, DROP}}

    def read_all(self) -> StoreContent:
        """Read everything in one transaction."""
        with self.store.read() as repo:
            graphs = {one.id: one for one in repo.doctor.graphs(-1, ALL) if one.loader is None}
            ids = [one.id for one in repo.doctor.tasks(-1, -1, LAST, ALL) if one.graph_id in graphs]
            tasks = {one.id: one for one in repo.tasks.read(ids)}
            return StoreContent(graphs, tasks, repo.edges.into(list(tasks)), repo.continuations.after(-1, ALL))

    def check_store(self) -> None:
        """Recount every stored count, and compare the row cache with the rows."""
        with self.store.read() as repo:
            assert [str(one) for one in check.doctor(repo, self.now)] == []
        check_row_cache(self.store)

    def open_graphs(self) -> list[int]:
        """The graphs that a person can still change."""
        over = {GraphState.FINISHED, GraphState.CANCELING, GraphState.CANCELED}
        return [one.id for one in self.read_all().graphs.values() if one.state not in over]

    def _server(self) -> Admission:
        return Admission(self.do, self.store.read, lambda: self.now, "me", self._bounds)
