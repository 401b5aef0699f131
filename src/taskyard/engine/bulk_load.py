"""Load graphs and extensions that are too large for one transaction: begin, insert page by page, show in a last commit.

The caller's thread makes the rows of a page; the writer only inserts them, and other commands run between two pages.
Every step is safe to repeat, since the reply to a commit may be lost. A loader is known by a random word of its own; it
stops once another loader has put its word there.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from taskyard.core.ids import Key, text_of
from taskyard.core.states import Millis, On
from taskyard.engine.clock import Clock
from taskyard.engine.failpoints import Boundary
from taskyard.engine.writer import Act, Answer, WriterThread, answer_of
from taskyard.lifecycle import queues
from taskyard.lifecycle.commands import Code, Refusal
from taskyard.lifecycle.continuations import drop_stale_loads
from taskyard.lifecycle.idempotency import (
    KeyedSubmission,
    answer_to_submission,
    remember_extension,
    remember_submission,
)
from taskyard.lifecycle.rows import LOAD, SHOW, Rows
from taskyard.lifecycle.submit import (
    PAGE_MAX,
    Extension,
    GraphChanged,
    LoadStarted,
    NewGraph,
    Submitted,
    add_hidden_page,
    add_page,
    begin,
    begin_extension,
    open_extension,
    open_graph,
)
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.queries import DuplicateKey

if TYPE_CHECKING:
    from concurrent.futures import Future

#: A load that has sent no heartbeat for this long is abandoned.
LOAD_MAX_MS: Final = 60_000
#: The last heartbeat of a load that is given up, and a moment that is later than only that.
NEVER: Final = Millis(0)
AT_FIRST: Final = Millis(1)


class Transact(Protocol):
    """Runs a function in a transaction of its own."""

    def __call__(self, act: Act[Answer], boundary: Boundary) -> Answer:
        """Run `act`."""


class Pages:
    """Loads graphs and extensions page by page."""

    def __init__(self, writer_thread: WriterThread, clock: Clock) -> None:
        self._writer_thread = writer_thread
        self._transact = writer_thread.transact
        self._clock = clock

    def load(self, named: KeyedSubmission) -> Submitted | Refusal | None:
        """Store a large graph; None if another loader has taken it over, so that the caller must look again."""
        one = named.submission
        begun = self._transact(lambda transaction: _begin(transaction, named), Boundary.LOAD_BEGIN)
        if not isinstance(begun, LoadStarted):
            return begun
        try:
            if not self._insert(_inserting(one, rows) for rows in self._rows(one, begun)):
                return None
            opened = self._transact(lambda transaction: _open(transaction, named), Boundary.LOAD_OPEN)
        except DuplicateKey:  # one of its keys, or the one under which it was submitted
            self.drop(one.new_tasks.graph_id, one.loader)
            raise
        if opened is None:
            # If the load is still ours, another request has used the same key meanwhile.
            self.drop(one.new_tasks.graph_id, one.loader)
        return opened

    def load_extension(self, one: Extension) -> Submitted | GraphChanged | Refusal:
        """Store a large extension."""
        begun = self._transact(lambda transaction: _begin_extension(transaction, one), Boundary.LOAD_BEGIN)
        if not isinstance(begun, LoadStarted):
            return begun
        try:
            if not self._insert(_hiding(one, rows) for rows in self._rows(one, begun)):
                return GraphChanged()
        except DuplicateKey:
            self._drop_extension(one)
            raise
        opened = self._transact(lambda transaction: _open_extension(transaction, one), Boundary.LOAD_OPEN)
        return opened if isinstance(opened, Submitted) else GraphChanged()

    def drop(self, graph: int, loader: str) -> None:
        """Delete a graph that `loader` began and never opened."""
        word = self._clock.word()
        if self._transact(lambda transaction: _take_over(transaction, graph, loader, word), Boundary.LOAD_DROP):
            while not self._transact(lambda transaction: _drop_page(transaction, graph, word), Boundary.LOAD_DROP):
                pass

    def drop_if_stale(self, graph: int) -> bool:
        """Delete a graph whose load is abandoned; return whether it may be begun again."""
        found = self._transact(lambda transaction: transaction.repo.graphs.peek([graph]), Boundary.OTHER)
        if not found or found[0].loader is None:
            return True
        if found[0].created_ms > self._clock.now() - LOAD_MAX_MS:
            return False
        self.drop(graph, found[0].loader)
        return True

    def _drop_extension(self, one: Extension) -> None:
        self._transact(lambda transaction: _record_heartbeat(transaction, one, NEVER), Boundary.LOAD_DROP)
        while self._transact(lambda transaction: drop_stale_loads(transaction, AT_FIRST, PAGE_MAX), Boundary.LOAD_DROP):
            pass

    def _insert(self, acts: Iterable[Act[bool]]) -> bool:
        """Insert pages one after the other, making the next while one is written; return whether all were inserted."""
        written: Future[bool] | None = None
        for act in acts:
            if written is not None and not answer_of(written):
                return False
            written = self._writer_thread.begin(act, Boundary.LOAD_PAGE)
        return written is None or bool(answer_of(written))

    def _rows(self, one: NewGraph | Extension, begun: LoadStarted) -> Iterator[Rows]:
        for page in one.new_tasks.pages(PAGE_MAX):
            hidden = isinstance(one, Extension)
            rows = one.new_tasks.rows(page, begun.queues, self._clock.now(), hidden=hidden)
            # The edges of an extension are counted as they arrive, so those of one task arrive together.
            yield from [rows] if hidden else rows.parts(PAGE_MAX)


def _begin(transaction: Transaction, named: KeyedSubmission) -> LoadStarted | Submitted | Refusal:
    one = named.submission
    begun = answer_to_submission(transaction, named) or begin(transaction, one)
    if isinstance(begun, Refusal) and begun.code is Code.LOADING and _loader(transaction, one) == one.loader:
        return LoadStarted(
            one.new_tasks.graph_id, queues.ensure(transaction.repo, one.new_tasks.dimensions, transaction.now)
        )
    return begun


def _inserting(one: NewGraph, rows: Rows) -> Callable[[Transaction], bool]:
    def act(transaction: Transaction) -> bool:
        if not _is_inserted(transaction, one.new_tasks.graph_id, rows) and not add_page(
            transaction, one.new_tasks.graph_id, one.loader, rows
        ):
            return False
        # A heartbeat, until the graph is opened.
        transaction.repo.graphs.set_created(one.new_tasks.graph_id, transaction.now)
        return True

    return act


def _open(transaction: Transaction, named: KeyedSubmission) -> Submitted | None:
    transaction.expect_continuations()
    if answer_to_submission(transaction, named) is not None:
        return None
    opened = open_graph(transaction, named.submission)
    remember_submission(transaction, named, opened)
    return opened if isinstance(opened, Submitted) else None


def _begin_extension(transaction: Transaction, one: Extension) -> LoadStarted | GraphChanged | Refusal:
    graph = one.new_tasks.graph_id
    if _record_heartbeat(transaction, one, transaction.now):  # it was begun already
        return LoadStarted(graph, queues.ensure(transaction.repo, one.new_tasks.dimensions, transaction.now))
    if transaction.repo.continuations.in_graph(graph, SHOW):
        return Refusal(Code.LOADING, f"graph {text_of(Key(graph))} has just been extended, and not all of it is there")
    begun = begin_extension(transaction, one)
    _record_heartbeat(transaction, one, transaction.now)
    return begun


def _hiding(one: Extension, rows: Rows) -> Callable[[Transaction], bool]:
    def act(transaction: Transaction) -> bool:
        inserted = _is_inserted(transaction, one.new_tasks.graph_id, rows) or add_hidden_page(transaction, one, rows)
        return inserted and _record_heartbeat(transaction, one, transaction.now)

    return act


def _open_extension(transaction: Transaction, one: Extension) -> Submitted | Refusal:
    transaction.expect_continuations()
    opened = open_extension(transaction, one)
    if isinstance(opened, Submitted):
        remember_extension(transaction, one.new_tasks.graph_id, one.key, one.digest)
    return opened


def _record_heartbeat(transaction: Transaction, one: Extension, at: Millis) -> bool:
    """Record a heartbeat of an extension that is loading; return False if it is not."""
    ours = [
        note
        for note in transaction.repo.continuations.in_graph(one.new_tasks.graph_id, LOAD)
        if note.source == one.loader
    ]
    for note in ours:
        transaction.repo.continuations.advance(note.id, at)
    return bool(ours)


def _is_inserted(transaction: Transaction, graph: int, rows: Rows) -> bool:
    """Return whether a page is stored already, by a commit whose reply was lost."""
    if rows.tasks:
        found = transaction.repo.tasks.read([rows.tasks[0][0]])
        return bool(found) and found[0].graph == graph
    prerequisite, dependent, on = rows.edges[0]
    edges = transaction.repo.edges.page_out_of(prerequisite, dependent, len(On))
    return any(edge.dependent == dependent and edge.on == on for edge in edges)


def _loader(transaction: Transaction, one: NewGraph) -> str | None:
    found = transaction.repo.graphs.peek([one.new_tasks.graph_id])
    return found[0].loader if found else None


def _take_over(transaction: Transaction, graph: int, loader: str, word: str) -> bool:
    """Put our word in the place of a loader's, which stops it; return False if the graph is not that loader's."""
    found = transaction.repo.graphs.read([graph])
    if not found or found[0].loader not in {loader, word}:
        return False
    transaction.repo.graphs.set_loader(graph, word)
    return True


def _drop_page(transaction: Transaction, graph: int, word: str) -> bool:
    found = transaction.repo.graphs.read([graph])
    if not found or found[0].loader != word:
        return True
    return transaction.repo.graphs.delete_page(graph, PAGE_MAX)
