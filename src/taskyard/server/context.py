"""What all routes share: the engine, authentication and authorization, and reads of the database."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from typing import Final, TypeVar
from urllib.parse import urlsplit

from taskyard.core import ids
from taskyard.core.ids import Key
from taskyard.core.states import LEASED, Millis
from taskyard.engine.engine import AsyncEngine, Engine
from taskyard.engine.errors import outages
from taskyard.lifecycle.commands import Refusal
from taskyard.server import tokens
from taskyard.server.amqp import AmqpThread
from taskyard.server.auth import Auth, Caller, Denial, Denials
from taskyard.server.errors import RequestRefused, from_refusal, not_found, refused
from taskyard.server.file_store import ServerFiles
from taskyard.server.kept_layouts import KeptLayouts
from taskyard.server.metrics import ServerMetrics
from taskyard.server.requests import LARGE_DOCUMENTS_MAX, BodyBudget
from taskyard.server.settings import Settings
from taskyard.server.tokens import READ, RunTokenSigner
from taskyard.server.wakeups import Wakeups
from taskyard.store.connection import Repo
from taskyard.store.rows import TaskRecord
from taskyard.views import tasks as task_views
from taskyard.views.graphs import is_settled

Answer = TypeVar("Answer")
#: The denial for requests that wait while their token ends.
ENDED: Final = Denial(401, "bad_token", "this token was revoked or has expired")
#: How many edges are followed to find the tasks that a cancel concerns, for a caller who may not in all pools of the
#: graph. Beyond that the right in all pools is needed.
SUBTREE_EDGES_MAX: Final = 10_000
#: How many launches that are linked to an update are looked at, to find one that a caller may read.
LINKED_MAX: Final = 100


class AppContext:
    """What all routes of one app share."""

    def __init__(self, engine: Engine, settings: Settings, signer: RunTokenSigner) -> None:
        self.engine = engine
        self.async_engine = AsyncEngine(engine)
        self.settings = settings
        self.signer = signer
        self.auth = Auth(engine, signer, settings.authentication)
        #: Where else than at the address of a request the page may come from.
        self.origins = frozenset({"://".join(urlsplit(settings.public_url)[:2])} if settings.public_url else ())
        self.amqp = AmqpThread(engine, settings, signer) if settings.amqp else None
        self.metrics = ServerMetrics(engine, self.amqp)
        self.denials = Denials(engine)
        self.body_budget = BodyBudget()
        self.large_documents = asyncio.Semaphore(LARGE_DOCUMENTS_MAX)
        self.graph_waiters, self.output_waiters, self.event_waiters = Wakeups(), Wakeups(), Wakeups()
        waiters = (self.graph_waiters, self.output_waiters, self.event_waiters)
        engine.listeners.graphs.append(self.graph_waiters.wake)
        engine.listeners.outputs.append(self.output_waiters.wake)
        engine.listeners.events.append(self.event_waiters.wake_all)
        engine.listeners.everything += [one.wake_all for one in waiters]
        self.layouts = KeptLayouts()
        self.files = ServerFiles(settings.files, engine.store.url)
        engine.missing_trees = self.files.missing_trees
        self.followers: Counter[str] = Counter()  # how many outputs and events each caller follows
        self.closing = asyncio.Event()  # set when the server stops: waiting requests are answered
        self.on_close: list[Callable[[], None]] = [one.wake_all for one in waiters]

    def close(self) -> None:
        """Answer waiting requests: the server is about to stop."""
        self.closing.set()
        for act in self.on_close:
            act()

    # Reads, on a thread.

    async def read(self, look: Callable[[Repo], Answer]) -> Answer:
        """Run a read on one consistent snapshot of the database."""

        def act() -> Answer:
            with outages(), self.engine.store.read() as repo:
                return look(repo)

        return await asyncio.to_thread(act)

    async def read_graph(
        self, caller: Caller, right: str, graph_id: str, view: Callable[[Repo, Key], Answer | None]
    ) -> Answer:
        """Read a graph on behalf of a caller; refuse one without the right in any of the graph's pools."""
        key = parse_id(graph_id, "graph")

        def look(repo: Repo) -> Answer | Denial | None:
            if repo.read.graph(key) is None:
                return None
            return graph_denial(repo, caller, right, key) or view(repo, key)

        found = await self.read(look)
        if isinstance(found, Denial):
            raise self.deny(found, f"{right} graph {graph_id}")
        if found is None:
            raise not_found("graph", graph_id)
        return found

    async def require_whole_graph(self, caller: Caller, right: str, graph_id: str) -> Key:
        """Return a graph's key; refuse a caller without the right in all of its pools, since every task is affected."""
        key, pools = await self.read_graph(
            caller, right, graph_id, lambda repo, key: (key, repo.graphs.pools_of([key])[key])
        )
        self.require(caller, right, pools, f"{right} graph {graph_id}")
        return key

    async def wait_until_settled(self, caller: Caller, graph_id: str, span_s: float) -> None:
        """Wait until a graph is settled, the time is over, or the server stops."""

        async def look() -> bool:
            if not await self.read(lambda repo: is_token_valid(repo, caller, self.engine.clock.now())):
                raise self.deny(ENDED, f"wait for graph {graph_id}")
            return self.closing.is_set() or await self.read_graph(caller, READ, graph_id, is_settled)

        await self.graph_waiters.wait(parse_id(graph_id, "graph"), look, bool, span_s)

    async def read_task(
        self, caller: Caller, right: str, task_id: str, view: Callable[[Repo, TaskRecord], Answer | None]
    ) -> Answer:
        """Read a task on behalf of a caller; refuse one without the right in any of the task's own pools."""
        key = parse_id(task_id, "task")

        def look(repo: Repo) -> Answer | Denial | None:
            record = task_views.find(repo, key)
            if record is None:
                return None
            return task_denial(repo, caller, right, record) or view(repo, record)

        found = await self.read(look)
        if isinstance(found, Denial):
            raise self.deny(found, f"{right} task {task_id}")
        if found is None:
            raise not_found("task", task_id)
        return found

    # Authorization.

    def deny(self, denial: Denial, what: str) -> RequestRefused:
        """Record a denial, and return the error to raise."""
        self.denials.record(denial.actor, f"{denial.status} {denial.code}: {what}")
        headers = {"WWW-Authenticate": "Bearer"} if denial.status == 401 else {}
        return refused(denial.status, denial.code, denial.text, headers=headers)

    def require(self, caller: Caller, right: str, pools: frozenset[str], what: str) -> None:
        """Refuse a caller who lacks a right in any of some pools."""
        if lacks := caller.missing_scopes(right, pools):
            raise self.deny(missing_scope(caller, " and ".join(lacks)), what)

    def require_admin(self, caller: Caller, what: str) -> None:
        """Refuse a caller who is not an admin."""
        if not caller.rights.admin or caller.run is not None:
            raise self.deny(missing_scope(caller, "admin"), what)

    def readable_pools(self, caller: Caller, right: str, what: str) -> frozenset[str] | None:
        """Return the pools in which a caller has a right, None for all; refuse a caller who has it in none."""
        if caller.run is not None or not caller.rights.has_anywhere(right):
            raise self.deny(missing_scope(caller, f"pool:*:{right}"), what)
        return caller.rights.pools_with(right)


def is_token_valid(repo: Repo, caller: Caller, now: int) -> bool:
    """Whether the caller's token is still valid: it may have been revoked or have expired since."""
    if caller.run is not None:
        token = caller.run.token
        found = repo.tasks.read([token.task])
        return bool(found) and found[0].state in LEASED and found[0].fence == token.fence
    if not caller.id:
        return True
    row = repo.tokens.find([caller.id]).get(caller.id)
    return row is not None and tokens.is_valid(row, Millis(now))


def missing_scope(caller: Caller, scope: str) -> Denial:
    """Deny a caller for lack of a scope."""
    return Denial(403, "forbidden", f"this needs the scope {scope}", caller.actor)


def graph_denial(repo: Repo, caller: Caller, right: str, graph: int) -> Denial | None:
    """Deny a caller who lacks a right in a graph; None if they have it."""
    scope = caller.missing_scope(right, graph, repo.graphs.pools_of([graph])[graph])
    if scope is None or (right == READ and reads_by_link(repo, caller, graph)):
        return None
    return missing_scope(caller, scope)


def reads_by_link(repo: Repo, caller: Caller, graph: int) -> bool:
    """Whether a caller may read a graph because of a launch that they may read, and that is linked to an update in it.

    The update may itself have been made for the update of a source.
    """
    linked = repo.launches.graphs_linked_to(graph, LINKED_MAX) if caller.run is None else []
    further = [outer for one in linked for outer in repo.launches.graphs_linked_to(one, LINKED_MAX)]
    pools = repo.graphs.pools_of({*linked, *further})
    return any(caller.missing_scope(READ, one, found) is None for one, found in pools.items())


def task_denial(repo: Repo, caller: Caller, right: str, record: TaskRecord) -> Denial | None:
    """Deny a caller who lacks a right in a task; None if they have it."""
    scope = caller.missing_scope(right, record.graph, task_views.pools(repo, record))
    if scope is None or (right == READ and reads_by_link(repo, caller, record.graph)):
        return None
    return missing_scope(caller, scope)


def subtree_denial(repo: Repo, caller: Caller, right: str, graph: int, tasks: Collection[int]) -> Denial | None:
    """Deny a caller who lacks a right in one of some tasks, or of the tasks behind them; None if they have it."""
    pools = repo.graphs.pools_of([graph])[graph]
    if caller.run is not None or not caller.missing_scopes(right, pools):
        return graph_denial(repo, caller, right, graph)
    behind = task_views.tasks_behind(repo, tasks, SUBTREE_EDGES_MAX)
    if behind is None:
        return missing_scope(caller, " and ".join(caller.missing_scopes(right, pools)))
    return next(filter(None, (task_denial(repo, caller, right, record) for record in behind)), None)


class Visibility:
    """Which other graphs and bots a view may show to a caller."""

    def __init__(self, repo: Repo, caller: Caller) -> None:
        self._repo = repo
        self._caller = caller
        self._pools = caller.rights.pools_with(READ) if caller.run is None else caller.run.pools

    def graph(self, graph: int) -> bool:
        """Whether the caller may see a graph."""
        return graph_denial(self._repo, self._caller, READ, graph) is None

    def bots_of(self, pools: Collection[str]) -> bool:
        """Whether the caller may see the bots of some pools."""
        return self._pools is None or not self._pools.isdisjoint(pools)


def parse_id(text: str, what: str) -> Key:
    """Read the id of a graph or task; a text that is not an id is answered like one that does not exist."""
    try:
        return ids.key_of(text)
    except ValueError:
        raise not_found(what, text) from None


def unwrap(answer: Answer | Refusal) -> Answer:
    """Return an answer of the engine, or raise its refusal."""
    if isinstance(answer, Refusal):
        raise from_refusal(answer)
    return answer


def bearer(authorization: str) -> str | None:
    """Read the token from an Authorization header; None if there is none."""
    kind, _, text = authorization.partition(" ")
    text = text.strip()
    return text if text and kind.lower() == "bearer" else None
