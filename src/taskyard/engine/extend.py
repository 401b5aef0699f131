"""Add tasks to a graph: read what it is, validate against that, and store unless it has changed meanwhile."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from taskyard.core.graph.model import Existing, digest
from taskyard.core.graph.parse import Validation
from taskyard.core.ids import Key, text_of
from taskyard.engine import submit
from taskyard.engine.bulk_load import Pages
from taskyard.engine.clock import Clock
from taskyard.engine.errors import Unavailable
from taskyard.engine.failpoints import Boundary
from taskyard.engine.submit import KeyGenerator
from taskyard.engine.writer import WriterThread, answer_of
from taskyard.lifecycle.commands import Code, Refusal
from taskyard.lifecycle.definitions import decoded
from taskyard.lifecycle.idempotency import Submitter, answer_to, digest_of_extension, remember_extension
from taskyard.lifecycle.rows import DROP, LOAD
from taskyard.lifecycle.submit import PAGE_MAX, Extension, GraphChanged, Submitted
from taskyard.store.connection import Store
from taskyard.store.queries import DuplicateKey

#: How often a graph is read again that others extend meanwhile.
LOOKS_MAX: Final = 10


class GraphExtension:
    """Adds tasks to graphs."""

    def __init__(
        self, writer_thread: WriterThread, store: Store, clock: Clock, keys: KeyGenerator, pages: Pages
    ) -> None:
        self._writer_thread = writer_thread
        self._store = store
        self._clock = clock
        self._keys = keys
        self._pages = pages

    def extend(self, graph_id: str, document: object, sender: Submitter, key: str = "") -> Submitted | Refusal:
        """Add the tasks of a document to a graph; a repeat with the same key changes nothing."""
        id = submit.key_of(graph_id)
        if id is None or isinstance(id, Refusal):
            return id or Refusal(Code.INVALID, "a graph has to be named")
        for _ in range(LOOKS_MAX):
            known = self._look(id)
            if isinstance(known, Refusal):
                return known
            answer = self._repeated(known, document, key) or self._extend(known, document, sender, key)
            if not isinstance(answer, GraphChanged):
                return answer
        raise Unavailable(f"graph {graph_id} was changed by others {LOOKS_MAX} times in a row")

    def _look(self, id: Key) -> "_Known | Refusal":
        with self._store.read() as repo:
            found = repo.graphs.peek([id])
            definition = repo.graphs.definition(id)
            if not found or found[0].loader is not None or definition is None:
                return Refusal(Code.NOT_FOUND, f"there is no graph {text_of(id)}")
            if repo.continuations.in_graph(id, LOAD) or repo.continuations.in_graph(id, DROP):
                # What that load adds may be deleted again, so nothing can require it yet.
                return Refusal(Code.LOADING, f"graph {text_of(id)} is being extended by another request")
            rows = repo.tasks.definitions_of(id)
        tasks = {label: (task, text, kept) for task, label, text, kept in rows}
        return _Known(id, found[0].extensions, definition[0], definition[2], _Digests(tasks))

    def _repeated(self, known: "_Known", document: object, key: str) -> Submitted | Refusal | None:
        """Return the earlier answer to a key."""
        if not key:
            return None
        with self._store.read() as repo:
            answer = answer_to(repo, key, _digest(known.id, document))
        return replace(answer, names=known.digests.ids) if isinstance(answer, Submitted) else answer

    def _extend(
        self, known: "_Known", document: object, sender: Submitter, key: str
    ) -> Submitted | GraphChanged | Refusal:
        validation = self._read(known, document)
        graph = validation.graph
        if graph is None:
            return submit.refusal(validation)
        if missing := submit.refuse_missing_trees(graph, sender):
            return missing
        digest = _digest(known.id, document) if key else ""
        if not graph.tasks:
            if key:
                self._writer_thread.transact(
                    lambda transaction: remember_extension(transaction, known.id, key, digest), Boundary.OTHER
                )
            return Submitted(known.id, echo=True, names=known.digests.ids)
        minted = self._keys.generate(len(graph.tasks))
        body = submit.body_of(document)
        new_tasks = submit.new_tasks_of(graph, body, minted, known.id, known.digests.ids, sender)
        sender.check(new_tasks.pools, new_tasks.tasks)
        extension = Extension(new_tasks, known.extensions, self._clock.word(), sender.actor, key, digest)
        try:
            answer = self._store_it(extension)
        except DuplicateKey:
            return GraphChanged()
        # A large extension becomes visible page by page: a query for the names may not find all of them yet.
        return replace(answer, names=new_tasks.ids) if isinstance(answer, Submitted) else answer

    def _store_it(self, one: Extension) -> Submitted | GraphChanged | Refusal:
        if one.new_tasks.weight > PAGE_MAX:
            return self._pages.load_extension(one)
        answer: Submitted | GraphChanged | Refusal = answer_of(self._writer_thread.put(one))
        return answer

    def _read(self, known: "_Known", document: object) -> Validation:
        existing = Existing(known.digests, known.routing)
        now = self._clock.now()
        validation = submit.read(document, now, known.scheduler_id, known.id, existing)
        if validation.graph is None:
            # An extension that was in time may be repeated later, when its deadlines have passed.
            timeless = submit.read(document, None, known.scheduler_id, known.id, existing)
            if timeless.graph is not None and not timeless.graph.tasks:
                return timeless
        return validation


def _digest(graph: int, document: object) -> str:
    return digest_of_extension(graph, submit.digest_of(submit.body_of(document)))


@dataclass(frozen=True, slots=True)
class _Known:
    """A graph as it was read."""

    id: Key
    extensions: int
    scheduler_id: str
    routing: str
    digests: "_Digests"


class _Digests(Mapping[str, str]):
    """The digest of each definition by label, computed on demand."""

    def __init__(self, tasks: Mapping[str, tuple[int, str, str | None]]) -> None:
        self._tasks = tasks

    @property
    def ids(self) -> dict[str, int]:
        return {label: task[0] for label, task in self._tasks.items()}

    def __getitem__(self, label: str) -> str:
        _, text, kept = self._tasks[label]
        return kept or digest(decoded(text))

    def __contains__(self, label: object) -> bool:
        return label in self._tasks

    def __iter__(self) -> Iterator[str]:
        return iter(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)
