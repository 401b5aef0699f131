"""Storing a graph: check it, give it keys, and store it in one transaction or in pages."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from taskyard.core.graph.document import Graph
from taskyard.core.graph.inside import pools_named
from taskyard.core.ids import Key, text_of
from taskyard.core.matching import DEFAULT_POOL
from taskyard.engine import intake
from taskyard.engine.clock import Clock
from taskyard.engine.keys import Mint
from taskyard.engine.loop import Loop, answer_of
from taskyard.engine.naming import Named, Sender, answer_to, digest_under_key
from taskyard.engine.pages import Pages
from taskyard.engine.troubles import Unavailable
from taskyard.lifecycle.commands import Code, Refusal
from taskyard.lifecycle.subgraph import Inside
from taskyard.lifecycle.submit import PAGE_MAX, Submission, Submitted
from taskyard.store.opening import Store
from taskyard.store.sessions import Taken

#: How often keys are minted anew, or a load that was taken out of our hands is begun again.
TRIES_MAX: Final = 5


#: The pools of a graph in which nothing names one.
_UNNAMED: Final = frozenset({DEFAULT_POOL})


class Submitting:
    """Stores graphs."""

    def __init__(self, loop: Loop, store: Store, clock: Clock, mint: Mint, pages: Pages, scheduler_id: str) -> None:
        self._loop = loop
        self._store = store
        self._clock = clock
        self._mint = mint
        self._pages = pages
        self._scheduler_id = scheduler_id

    def submit(self, document: object, graph_id: str | None, key: str, sender: Sender) -> Submitted | Refusal:
        """Store the graph of a document."""
        id = intake.key_of(graph_id)
        if isinstance(id, Refusal):
            return id
        validation = intake.read(document, self._clock.now(), self._scheduler_id, id)
        if validation.graph is None:
            return self._repeat(document, id, key, sender) or intake.refusal(validation)
        graph, body = validation.graph, intake.body_of(document)

        def make() -> Named:
            named = self._named(graph, body, id, key, sender)
            sender.may(named.submission.brood.pools or _UNNAMED)
            return named

        return self.store(make, is_chosen=id is not None)

    def store(self, make: Callable[[], Named], *, is_chosen: bool = False) -> Submitted | Refusal:
        """Store what `make` makes; it makes it again with other keys, where somebody else has one of them.

        An id that somebody has chosen stays, so what is there under it is the answer.
        """
        answer: Submitted | Refusal | None = None
        for _ in range(TRIES_MAX):
            named = make()
            try:
                answer = self._try(named)
            except Taken:
                continue
            if answer is not None and (is_chosen or not _is_conflict(answer)):
                return _with_names(answer, named)
        if answer is None:
            raise Unavailable(f"the graph could not be stored in {TRIES_MAX} tries")
        return answer  # it was not the minted id that is in use, but the key

    def bear(self, document: object, inside: Inside) -> Submitted | Refusal | None:
        """Store the graph inside a task, and begin that task with it; None if that has to be tried again."""
        validation = intake.read(document, self._clock.now(), self._scheduler_id)
        if validation.graph is None:
            return intake.refusal(validation)
        sender = Sender(f"task {text_of(Key(inside.task))}-{inside.attempt}", inside.submitter)
        with intake.still_for(document):
            return self._try(self._named(validation.graph, intake.body_of(document), None, "", sender, inside))

    def _try(self, named: Named) -> Submitted | Refusal | None:
        """Store it, or say by None that it has to be tried again."""
        if named.submission.brood.weight > PAGE_MAX:
            answer = self._pages.load(named)
        else:
            answer = answer_of(self._loop.put(named))
        if not isinstance(answer, Refusal) or answer.code is not Code.LOADING:
            return answer
        return None if self._pages.drop_if_stale(named.submission.brood.graph_id) else answer

    def _named(
        self, graph: Graph, body: bytes, id: Key | None, key: str, sender: Sender, inside: Inside | None = None
    ) -> Named:
        minted = self._mint.fresh(len(graph.tasks))
        brood = intake.brood_of(graph, body, minted, minted.graph if id is None else id, {}, sender.submitter)
        definition = intake.definition_of(graph, self._scheduler_id, intake.digest_of(body))
        submission = Submission(graph, brood, definition, self._clock.word(), sender.actor, inside)
        return Named(submission, key, chosen=id is not None)

    def _repeat(self, document: object, id: Key | None, key: str, sender: Sender) -> Submitted | None:
        """Find what was submitted in time and is repeated after its deadline."""
        if id is None and not key:
            return None
        graph = intake.read(document, None, self._scheduler_id, id).graph
        if graph is None:
            return None
        sender.may(pools_of(graph))
        digest = intake.digest_of(intake.body_of(document))
        with self._store.read() as txn:
            if id is None:
                answer = answer_to(txn, key, digest_under_key(digest))
                return answer if isinstance(answer, Submitted) else None
            graphs, definition = txn.graphs.peek([id]), txn.graphs.definition(id)
        is_whole = bool(graphs) and graphs[0].loader is None
        return Submitted(id, echo=True) if is_whole and definition and definition[5] == digest else None


def pools_of(graph: Graph) -> frozenset[str]:
    """Name the pools of a new graph: the default one, if nothing in it names any."""
    return pools_named(graph.tasks.values()) or _UNNAMED


def _with_names(answer: Submitted | Refusal, named: Named) -> Submitted | Refusal:
    """Tell what tasks are called, where it is known: what was stored before may have grown since."""
    if isinstance(answer, Submitted) and not answer.echo:
        return replace(answer, names=named.submission.brood.ids)
    return answer


def _is_conflict(answer: Submitted | Refusal) -> bool:
    return isinstance(answer, Refusal) and answer.code is Code.CONFLICT
